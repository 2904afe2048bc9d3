/** `smart-router merchants list`. */
import type { Command } from 'commander';
import type { Merchant } from '../answers.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';
import { showMerchants, skippedSteps } from '../merchant-table.js';

export function merchantsList(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('list'), {
    summary: 'list merchants and the chains of their calls',
    examples: [
      ['merchants list', ''],
      ['merchants list --json', 'for a script'],
    ],
  });
  answerWith(command, cli, async (api) => {
    const { body } = await api.send<{ merchants: Merchant[] }>('/merchants', { has: 'merchants' });
    const { merchants } = body;
    return {
      document: body,
      text:
        merchants.length === 0
          ? 'no merchants are configured: all calls take the default chain\n'
          : showMerchants(merchants, cli.screen.paint),
      warnings: merchants.flatMap(skippedSteps),
    };
  });
}
