/** `smart-router merchants delete`. */
import type { Command } from 'commander';
import { clean } from '../../terminal/text.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';

export function merchantsDelete(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('delete').argument('<id>', 'id of the merchant'), {
    summary: 'delete the configuration of a merchant: its calls take the default chain',
    examples: [['merchants delete acme', '']],
    exits: [4],
  });
  answerWith(command, cli, async (api) => {
    const [id = ''] = command.args;
    const { body } = await api.send<{ merchant_id: string }>(`/merchants/${encodeURIComponent(id)}`, {
      method: 'DELETE',
      has: 'merchant_id',
    });
    return {
      document: body,
      text: `merchant ${clean(body.merchant_id)} deleted: its calls take the default chain\n`,
    };
  });
}
