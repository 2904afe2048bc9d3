/** `smart-router tiers`: shows and replaces the tier configuration. */
import type { Command } from 'commander';
import { isPlainObject, parseTierConfig } from '../../config/tiers.js';
import { type Cell, table } from '../../terminal/table.js';
import { clean, type Paint } from '../../terminal/text.js';
import { addGroup, answerWith, type Cli, describeOperator, wholeNumber } from '../cli.js';
import { Failure, toFailure } from '../failure.js';
import { holdText } from '../format.js';
import { readJson } from '../input.js';
import type { Tiers } from '../replies.js';

export function tiers(program: Command, cli: Cli): void {
  addGroup(program, cli, 'tiers', 'show or replace the tier configuration', [tiersGet, tiersSet]);
}

function tiersGet(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('get'), {
    summary: 'show the tier configuration',
    examples: [
      ['tiers get', ''],
      ['tiers get --json > tiers.json', 'edit it, then: smart-router tiers set tiers.json'],
    ],
  });
  answerWith(command, cli, async (api) => {
    const { body } = await api.send<Tiers>('/tiers', { has: 'tiers' });
    return { document: body, text: showTiers(body, cli.output.paint) };
  });
}

export function showTiers({ tiers, default_chain, hold, version }: Tiers, paint: Paint): string {
  const names = [...default_chain, ...Object.keys(tiers).filter((name) => !default_chain.includes(name))];
  const rows = names.flatMap((name): Cell[][] => {
    const tier = tiers[name];
    if (!tier) return [];
    const place = default_chain.indexOf(name);
    const pool = place >= 0 || tier.type === 'shared' ? `pool:${name}` : `merchant:${name}`;
    return [[name, tier.type, tier.target, tier.max_concurrent ?? 1, place >= 0 ? place + 1 : '-', pool]];
  });
  const columns = ['TIER', 'TYPE', '>TARGET', '>CALLS PER POD', '>IN CHAIN', 'POOL'];
  const waiting = hold ? `hold     ${holdText(hold)}\n` : '';
  const chain = clean(default_chain.join(' > '));
  return `${table(columns, rows, paint)}\nchain    ${chain}\n${waiting}version  ${clean(String(version))}\n`;
}

function tiersSet(parent: Command, cli: Cli): void {
  const argument = 'a file, - for standard input, or the JSON itself';
  const command = describeOperator(parent.command('set').argument('<file|-|json>', argument), {
    summary: 'replace the tier configuration',
    about:
      'Accepts the three forms of TIER_CONFIG, and the output of `tiers get --json`, whose version must then match. Everything is checked first, and all problems are reported together.',
    examples: [
      ['tiers set tiers.json', ''],
      ['tiers set \'{"gold":10,"standard":20}\'', ''],
      [
        'tiers set \'{"tiers":{"gold":{"target":10}},"hold":{"max_wait":"60s"}}\'',
        'calls may wait for a pod',
      ],
      ['tiers set tiers.json --version 3', 'only if version 3 is current'],
      ['tiers get --json | jq .tiers.gold.target=12 | smart-router tiers set -', ''],
    ],
    exits: [5],
  })
    .option('--version <n>', 'fail if the router has another version', wholeNumber(0, 1e15))
    .option('--force', 'replace any version, also if the file names one');
  answerWith(command, cli, async (api) => {
    const { version, force } = command.opts<{ version?: number; force?: true }>();
    const { value, from } = await readJson(cli, command.args[0] ?? '');
    const { tiers, version: read } = unwrap(value);
    const { config, problems, warnings } = parseTierConfig(tiers, from);
    if (!config) throw new Failure('usage', 'invalid tier configuration:', problems.map(clean));
    const expected = force ? undefined : (version ?? read);
    const headers = expected === undefined ? {} : { 'if-match': `"${expected}"` };
    const { body } = await api
      .send<Tiers>('/tiers', { method: 'PUT', body: tiers, headers, has: 'tiers' })
      .catch((error: unknown) => {
        const { code, message } = toFailure(error);
        if (code !== 'version_conflict') throw error;
        throw new Failure(
          code,
          `${message}. Not replaced: yours is based on version ${expected}; --force replaces it anyway.`,
        );
      });
    return { document: body, text: showTiers(body, cli.output.paint), warnings: warnings.map(clean) };
  });
}

/** The output of `tiers get --json` has more fields than the configuration. */
function unwrap(value: unknown): { tiers: unknown; version: number | undefined } {
  if (!isPlainObject(value) || !isPlainObject(value.tiers) || !Array.isArray(value.default_chain)) {
    return { tiers: value, version: undefined };
  }
  const { success: _, warnings: __, version, ...tiers } = value;
  return typeof version === 'number' || version === undefined
    ? { tiers, version }
    : { tiers: value, version: undefined };
}
