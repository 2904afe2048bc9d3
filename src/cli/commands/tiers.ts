/** `smart-router tiers`: shows and replaces the tier configuration. */
import { Option } from 'commander';
import { isPlainObject, parseTierConfig } from '../../config/tiers.js';
import { type Cell, table } from '../../terminal/table.js';
import { clean } from '../../terminal/text.js';
import { routerCommand } from '../access.js';
import { group } from '../cli.js';
import { Failure, toFailure } from '../failure.js';
import { holdText } from '../format.js';
import { jsonArgument, readJson, wholeNumber } from '../input.js';
import type { Tiers } from '../replies.js';

const get = routerCommand({
  name: 'get',
  summary: 'show the tier configuration',
  examples: [
    ['tiers get', ''],
    ['tiers get --json > tiers.json', 'edit it, then: smart-router tiers set tiers.json'],
  ],
  async run({ api }) {
    const { body } = await api.send<Tiers>('/tiers', 'tiers');
    return { document: body, text: showTiers(body) };
  },
});

function showTiers({ tiers, default_chain, hold, version }: Tiers): string {
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
  return `${table(columns, rows)}\nchain    ${chain}\n${waiting}version  ${clean(String(version))}\n`;
}

const set = routerCommand<{ version?: number; force?: true }>({
  name: 'set',
  summary: 'replace the tier configuration',
  about:
    'Accepts the three forms of TIER_CONFIG, and the output of `tiers get --json`, whose version must then match. Everything is checked first, and all problems are reported together.',
  examples: [
    ['tiers set tiers.json', ''],
    ['tiers set \'{"gold":10,"standard":20}\'', ''],
    ['tiers set \'{"tiers":{"gold":{"target":10}},"hold":{"max_wait":"60s"}}\'', 'calls may wait for a pod'],
    ['tiers set tiers.json --version 3', 'only if version 3 is current'],
    ['tiers get --json | jq .tiers.gold.target=12 | smart-router tiers set -', ''],
  ],
  exits: [5],
  args: [jsonArgument],
  options: [
    new Option('--version <n>', 'fail if the router has another version').argParser(wholeNumber(0, 1e15)),
    new Option('--force', 'replace any version, also if the file names one'),
  ],
  async run({ cli, api, args: [argument = ''], options: { version, force } }) {
    const { value, from } = await readJson(cli, argument);
    const { tiers: body, version: read } = unwrap(value);
    const { config, problems, warnings } = parseTierConfig(body, `${from}: `);
    if (!config) throw new Failure('usage', 'invalid tier configuration:', problems.map(clean));
    const expected = force ? undefined : (version ?? read);
    const headers = expected === undefined ? {} : { 'if-match': `"${expected}"` };
    const { body: written } = await api
      .send<Tiers>('PUT /tiers', 'tiers', { body, headers })
      .catch((error: unknown) => {
        const { code, message } = toFailure(error);
        if (code !== 'version_conflict') throw error;
        throw new Failure(
          code,
          `${message}. Not replaced: yours is based on version ${expected}; --force replaces it anyway.`,
        );
      });
    return { document: written, text: showTiers(written), warnings: warnings.map(clean) };
  },
});

export const tiers = group('tiers', 'show or replace the tier configuration', [get, set]);

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
