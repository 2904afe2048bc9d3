/** `smart-router tiers get`: the tier configuration that holds. */
import type { Command } from 'commander';
import { type Cell, table } from '../../terminal/table.js';
import type { Paint } from '../../terminal/text.js';
import { clean } from '../../terminal/text.js';
import type { Tiers } from '../answers.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';

export function tiersGet(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('get'), {
    summary: 'show the tier configuration',
    examples: [
      ['tiers get', ''],
      ['tiers get --json > tiers.json', 'edit it, then: smart-router tiers set tiers.json'],
    ],
  });
  answerWith(command, cli, async (api) => {
    const { body } = await api.send<Tiers>('/tiers', { has: 'tiers' });
    return { document: body, text: showTiers(body, cli.screen.paint) };
  });
}

export function showTiers({ tiers, default_chain, version }: Tiers, paint: Paint): string {
  const names = [...default_chain, ...Object.keys(tiers).filter((name) => !default_chain.includes(name))];
  const rows = names.flatMap((name): Cell[][] => {
    const tier = tiers[name];
    if (!tier) return [];
    const place = default_chain.indexOf(name);
    const pool = place >= 0 || tier.type === 'shared' ? `pool:${name}` : `merchant:${name}`;
    return [[name, tier.type, tier.target, tier.max_concurrent ?? 1, place >= 0 ? place + 1 : '-', pool]];
  });
  const columns = [
    { head: 'TIER' },
    { head: 'TYPE' },
    { head: 'TARGET', align: 'right' },
    { head: 'CALLS PER POD', align: 'right' },
    { head: 'IN CHAIN', align: 'right' },
    { head: 'POOL' },
  ] as const;
  return `${table(columns, rows, paint)}\nchain    ${clean(default_chain.join(' > '))}\nversion  ${version}\n`;
}
