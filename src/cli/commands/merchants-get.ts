/** `smart-router merchants get`. */
import type { Command } from 'commander';
import type { Merchant } from '../answers.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';
import { showMerchant, skippedSteps } from '../merchant-table.js';

export function merchantsGet(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('get').argument('<id>', 'id of the merchant'), {
    summary: 'show one merchant and the chain of its calls',
    examples: [['merchants get acme', '']],
    exits: [4],
  });
  answerWith(command, cli, async (api) => {
    const path = `/merchants/${encodeURIComponent(command.args[0] ?? '')}`;
    const { body } = await api.send<Merchant>(path, { has: 'merchant_id' });
    return { document: body, text: showMerchant(body, cli.screen.paint), warnings: skippedSteps(body) };
  });
}
