/** `smart-router merchants`: which pods the calls of a merchant get. */
import { rename, rm, writeFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { Argument, Option } from 'commander';
import { type MerchantConfig, parseMerchantConfig } from '../../calls/chain.js';
import { holdLimits } from '../../config/hold.js';
import { isName, isPlainObject, showValue } from '../../config/tiers.js';
import { type Column, facts, tableOf } from '../../terminal/table.js';
import { clean } from '../../terminal/text.js';
import { routerCommand } from '../access.js';
import type { RouterApi } from '../api.js';
import { applyOption, type Cli, group, type Outcome, toJson } from '../cli.js';
import { Failure, oneLine, toFailure } from '../failure.js';
import { count, holdText } from '../format.js';
import { jsonArgument, readJson, wholeNumber } from '../input.js';
import type { Merchant, Merchants } from '../replies.js';

const readMerchants = async (api: RouterApi) =>
  (await api.send<Merchants>('/merchants', 'merchants')).body.merchants;
const pathOf = (id: string) => `/merchants/${encodeURIComponent(id)}`;
const idArgument = new Argument('<id>', 'id of the merchant');

const list = routerCommand({
  name: 'list',
  summary: 'list merchants and the chains of their calls',
  examples: [
    ['merchants list', ''],
    ['merchants list --json', 'for a script'],
  ],
  async run({ api }) {
    const found = await readMerchants(api);
    return {
      document: { merchants: found },
      text:
        found.length === 0
          ? 'no merchants are configured; all calls use the default chain\n'
          : showMerchants(found),
      warnings: found.flatMap(skippedSteps),
    };
  },
});

const get = routerCommand({
  name: 'get',
  summary: 'show one merchant and the chain of its calls',
  examples: [['merchants get acme', '']],
  exits: [4],
  args: [idArgument],
  async run({ api, args: [id = ''] }) {
    return merchantOutcome((await api.send<Merchant>(pathOf(id), 'merchant_id')).body);
  },
});

/** The options of `set` by their fields in the configuration. */
const fieldOptions = {
  tier: new Option('--tier <tier>', 'the tier at which the default chain starts'),
  pool: new Option('--pool <id>', 'try the merchant pool of this name first').argParser((id: string) =>
    id.replace(/^merchant:/, ''),
  ),
  fallback: new Option(
    '--fallback <steps>',
    'tiers or merchant:ID, separated by commas, instead of the default chain',
  ).argParser((steps: string) => steps.split(',').map((step) => step.trim())),
  max_wait: new Option('--max-wait <duration>', 'how long a call may wait for a pod, like 20s'),
  max_waiting: limitOption('--max-waiting <n>', 'maximum number of waiting calls', holdLimits.maxWaiting),
  priority: limitOption('--priority <n>', 'calls of a higher priority are served first', holdLimits.priority),
  weight: limitOption(
    '--weight <n>',
    'share of the pods among merchants of the same priority',
    holdLimits.weight,
  ),
  max_calls: limitOption('--max-calls <n>', 'maximum number of live calls', holdLimits.maxCalls),
  fallback_number: new Option(
    '--fallback-number <number>',
    'connect a caller whose wait expires to this number',
  ),
};

function limitOption(flags: string, description: string, range: readonly [number, number]): Option {
  return new Option(flags, description).argParser(wholeNumber(...range));
}

const set = routerCommand<Record<string, unknown>>({
  name: 'set',
  summary: 'write the configuration of a merchant',
  about: 'Replaces the whole entry: fields that are not given are cleared.',
  examples: [
    ['merchants set acme --pool acme', "acme's own pods first, then the default chain"],
    ['merchants set acme --tier standard', 'the default chain, starting at standard'],
    ['merchants set acme --fallback merchant:acme,overflow', 'these pools and no others'],
    ['merchants set acme --max-calls 40 --max-wait 20s', 'at most 40 live calls; more wait for up to 20 s'],
    ['merchants set acme \'{"tier":"gold"}\'', ''],
  ],
  args: [idArgument, new Argument('[file|-|json]', 'the whole entry, instead of the options')],
  options: Object.values(fieldOptions),
  async run({ api, cli, args: [id = '', json], options }) {
    const { config, problems } = parseMerchantConfig(await readInput(cli, json, options), id);
    if (!config) throw new Failure('usage', 'invalid merchant configuration:', problems.map(clean));
    const { body } = await api.send<Merchant>(`PUT ${pathOf(id)}`, 'merchant_id', { body: config });
    return merchantOutcome(body);
  },
});

async function readInput(
  cli: Cli,
  json: string | undefined,
  options: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  const given = Object.entries(fieldOptions).flatMap(([field, option]) => {
    const value = options[option.attributeName()];
    return value === undefined ? [] : [[field, value] as const];
  });
  if (given.length > 0 === (json !== undefined)) {
    throw new Failure(
      'usage',
      'give either JSON or at least one option, like --tier or --max-calls; {} clears the entry',
    );
  }
  if (json !== undefined) return (await readJson(cli, json)).value;
  const isHold = (field: string) => field === 'max_wait' || field === 'max_waiting';
  const hold = given.filter(([field]) => isHold(field));
  const fields = Object.fromEntries(given.filter(([field]) => !isHold(field)));
  return hold.length > 0 ? { ...fields, hold: Object.fromEntries(hold) } : fields;
}

const remove = routerCommand({
  name: 'delete',
  summary: 'delete the configuration of a merchant: its calls use the default chain',
  examples: [['merchants delete acme', '']],
  exits: [4],
  args: [idArgument],
  async run({ api, args: [id = ''] }) {
    const { body } = await api.send<{ merchant_id: string }>(`DELETE ${pathOf(id)}`, 'merchant_id');
    const text = `merchant ${clean(body.merchant_id)} deleted; its calls use the default chain\n`;
    return { document: body, text };
  },
});

const exportAll = routerCommand({
  name: 'export',
  summary: 'write the configuration of all merchants as JSON, for a backup',
  about: '`merchants import` reads it. It does not contain tiers: use `tiers get --json` and `tiers set`.',
  examples: [
    ['merchants export merchants.json', ''],
    ['merchants export | gzip > merchants.json.gz', ''],
  ],
  args: [new Argument('[file]', 'target file (default: standard output)')],
  async run({ api, args: [file] }) {
    const found = await readMerchants(api);
    const document = { merchants: configurations(found) };
    if (file === undefined) return { document, text: `${toJson(document)}\n` };
    await writeAtomically(file, `${toJson(document)}\n`);
    return { document, text: `${count(found.length, 'merchant')} written to ${file}\n` };
  },
});

/** Renames a complete file: a full disk keeps the previous backup. */
async function writeAtomically(file: string, text: string): Promise<void> {
  const draft = `${file}.${process.pid}.tmp`;
  try {
    await writeFile(draft, text);
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw new Failure('failed', `cannot write ${file}: ${oneLine((error as Error).message)}`);
  }
}

/** Enough for 100,000 merchants. */
const maxBackupBytes = 16 * 1024 * 1024;

const importAll = routerCommand<{ apply?: true }>({
  name: 'import',
  summary: 'write merchants from a backup; a dry run unless --apply is given',
  about:
    'Everything is checked first, and all problems are reported together. Then each merchant that differs is written atomically, in sequence. A failure says how many were written; the same command writes the rest. Merchants that are not in the file do not change.',
  examples: [
    ['merchants import merchants.json', 'show what would change'],
    ['merchants import merchants.json --apply', 'do it'],
    ['merchants import - --apply < merchants.json', 'from standard input'],
  ],
  args: [jsonArgument],
  options: [applyOption],
  async run({ api, cli, args: [argument = ''], options: { apply = false } }) {
    const { value, from } = await readJson(cli, argument, maxBackupBytes);
    const wanted = readConfigurations(value, from);
    const before = configurations(await readMerchants(api));
    const changes = changesOf(before, wanted);
    const kept = Object.keys(before).filter((id) => !Object.hasOwn(wanted, id));
    const toWrite = changes.filter(({ change }) => change !== 'unchanged');
    let written = 0;
    let failure: Failure | undefined;
    try {
      for (const { merchant_id, after } of apply ? toWrite : []) {
        await api.send<Merchant>(`PUT ${pathOf(merchant_id)}`, 'merchant_id', { body: after });
        written += 1;
      }
    } catch (error) {
      const { code, message } = toFailure(error);
      const failed = toWrite[written]?.merchant_id;
      const done = `${written} of ${count(toWrite.length, 'merchant')} written; ${failed} failed: ${message}`;
      failure = new Failure(code, `${done} Run it again.`);
    }
    return importOutcome(changes, kept, !apply, failure);
  },
});

export const merchants = group('merchants', 'show or change merchants', [
  list,
  get,
  set,
  remove,
  exportAll,
  importAll,
]);

const changeColours = {
  added: 'green',
  changed: 'yellow',
  unchanged: 'dim',
} as const;

function importOutcome(
  changes: readonly Change[],
  kept: readonly string[],
  dryRun: boolean,
  failure: Failure | undefined,
): Outcome {
  const of = (change: Change['change']) => changes.filter((one) => one.change === change).length;
  const counts = { added: of('added'), changed: of('changed'), unchanged: of('unchanged') };
  const columns: Column<Change>[] = [
    ['MERCHANT', ({ merchant_id }) => merchant_id],
    ['CHANGE', ({ change }) => ({ text: change, colour: changeColours[change] })],
    ['BEFORE', ({ before }) => (before === null ? '-' : JSON.stringify(before))],
    ['AFTER', ({ after }) => JSON.stringify(after)],
  ];
  const total = `${counts.added} added, ${counts.changed} changed, ${counts.unchanged} unchanged`;
  const rest = kept.length > 0 ? ` ${count(kept.length, 'merchant')} not in the file: unchanged.` : '';
  const result = dryRun ? `Dry run: ${total}. Nothing was changed; --apply does it.` : `Done: ${total}.`;
  return {
    document: { dry_run: dryRun, ...counts, not_in_file: kept, merchants: changes },
    text: `${changes.length > 0 ? `${tableOf(changes, columns)}\n` : ''}${failure ? '' : `${result}${rest}\n`}`,
    failure,
  };
}

type Configurations = Record<string, MerchantConfig>;

type Change = ReturnType<typeof changesOf>[number];

/** The configuration without the fields that the router computes. */
function configurations(merchants: readonly Merchant[]): Configurations {
  const entries = merchants.map(({ merchant_id, chain: _, skipped: __, ...config }) => [merchant_id, config]);
  return Object.fromEntries(entries) as Configurations;
}

/** Throws with all problems together. */
function readConfigurations(value: unknown, from: string): Configurations {
  const merchants = isPlainObject(value) ? value.merchants : undefined;
  if (!isPlainObject(merchants)) {
    throw new Failure(
      'usage',
      `${from} must be the output of \`merchants export\`: {"merchants": {"ID": {"tier": ..., "pool": ..., "fallback": ...}}}`,
    );
  }
  const problems: string[] = [];
  const read = Object.entries(merchants).flatMap(([id, input]) => {
    if (!isName(id)) {
      problems.push(`${showValue(id)}: an id has 1 to 64 characters of A-Z a-z 0-9 _ . -`);
      return [];
    }
    const { config, problems: found } = parseMerchantConfig(input, id);
    problems.push(...found);
    return config ? [[id, config] as const] : [];
  });
  if (problems.length > 0) {
    throw new Failure('usage', `${from} is invalid; nothing was changed:`, problems.map(clean));
  }
  return Object.fromEntries(read);
}

/** `before` is null for an added merchant. */
function changesOf(before: Configurations, after: Configurations) {
  return Object.entries(after).map(([merchant_id, config]) => {
    const old = Object.hasOwn(before, merchant_id) ? (before[merchant_id] ?? null) : null;
    const isSame = isDeepStrictEqual(old, config);
    const change: keyof typeof changeColours = old === null ? 'added' : isSame ? 'unchanged' : 'changed';
    return { merchant_id, change, before: old, after: config };
  });
}

function showMerchants(merchants: readonly Merchant[]): string {
  const columns: Column<Merchant>[] = [
    ['MERCHANT', (one) => one.merchant_id],
    ['TIER', (one) => one.tier ?? '-'],
    ['POOL', (one) => one.pool ?? '-'],
    ['FALLBACK', (one) => one.fallback?.join(',') || '-'],
    ['LIMITS', limitsText, merchants.some((one) => limitsText(one) !== '-')],
    ['CHAIN', (one) => one.chain.join(' > ')],
  ];
  return tableOf(merchants, columns);
}

/** How its calls wait and are limited. */
function limitsText({ hold, priority, weight, max_calls, fallback_number }: Merchant): string {
  const limits = [
    ['max_calls', max_calls],
    ['hold', hold && holdText(hold)],
    ['priority', priority],
    ['weight', weight],
    ['then', fallback_number],
  ] as const;
  const parts = limits.flatMap(([name, value]) => (value === undefined ? [] : [`${name} ${value}`]));
  return parts.join(', ') || '-';
}

function merchantOutcome(merchant: Merchant): Outcome {
  const { merchant_id, tier, pool, fallback, chain } = merchant;
  const text = facts([
    ['merchant', merchant_id],
    ['tier', tier ?? '-'],
    ['pool', pool ?? '-'],
    ['fallback', fallback?.join(', ') || '-'],
    ['limits', limitsText(merchant)],
    ['chain', chain.join(' > ')],
  ]);
  return { document: merchant, text, warnings: skippedSteps(merchant) };
}

/** Steps that name an unknown tier or pool: calls skip them. */
function skippedSteps({ merchant_id, skipped }: Merchant): string[] {
  return skipped.map(({ step, reason }) => clean(`${merchant_id}: ${step} is skipped: ${reason}`));
}
