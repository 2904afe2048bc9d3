/** `smart-router merchants`: which pods the calls of a merchant get. */

import { rename, rm, writeFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Command } from 'commander';
import { type MerchantConfig, parseMerchantConfig } from '../../calls/chain.js';
import { holdLimits } from '../../config/hold.js';
import { isName, isPlainObject, showValue } from '../../config/tiers.js';
import { type Cell, facts, table } from '../../terminal/table.js';
import { type Colour, clean, type Paint } from '../../terminal/text.js';
import {
  addGroup,
  answerWith,
  type Cli,
  describeOperator,
  type Outcome,
  toJson,
  wholeNumber,
  withApply,
} from '../cli.js';
import { Failure, oneLine, toFailure } from '../failure.js';
import { count, holdText } from '../format.js';
import { readJson } from '../input.js';
import type { Merchant } from '../replies.js';

export function merchants(program: Command, cli: Cli): void {
  addGroup(program, cli, 'merchants', 'show or change merchants', [
    merchantsList,
    merchantsGet,
    merchantsSet,
    merchantsDelete,
    merchantsExport,
    merchantsImport,
  ]);
}

function merchantsList(parent: Command, cli: Cli): void {
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
          ? 'no merchants are configured; all calls use the default chain\n'
          : showMerchants(merchants, cli.output.paint),
      warnings: merchants.flatMap(skippedSteps),
    };
  });
}

function merchantsGet(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('get').argument('<id>', 'id of the merchant'), {
    summary: 'show one merchant and the chain of its calls',
    examples: [['merchants get acme', '']],
    exits: [4],
  });
  answerWith(command, cli, async (api) => {
    const path = `/merchants/${encodeURIComponent(command.args[0] ?? '')}`;
    const { body } = await api.send<Merchant>(path, { has: 'merchant_id' });
    return { document: body, text: showMerchant(body, cli.output.paint), warnings: skippedSteps(body) };
  });
}

interface Options {
  tier?: string;
  pool?: string;
  fallback?: string;
  maxWait?: string;
  maxWaiting?: number;
  priority?: number;
  weight?: number;
  maxCalls?: number;
  fallbackNumber?: string;
}

function merchantsSet(parent: Command, cli: Cli): void {
  const command = describeOperator(
    parent
      .command('set')
      .argument('<id>', 'id of the merchant')
      .argument('[file|-|json]', 'the whole entry, instead of the options'),
    {
      summary: 'write the configuration of a merchant',
      about: 'Replaces the whole entry: fields that are not given are cleared.',
      examples: [
        ['merchants set acme --pool acme', "acme's own pods first, then the default chain"],
        ['merchants set acme --tier standard', 'the default chain, starting at standard'],
        ['merchants set acme --fallback merchant:acme,overflow', 'these pools and no others'],
        [
          'merchants set acme --max-calls 40 --max-wait 20s',
          'at most 40 live calls; more wait for up to 20 s',
        ],
        ['merchants set acme \'{"tier":"gold"}\'', ''],
      ],
    },
  )
    .option('--tier <tier>', 'the tier at which the default chain starts')
    .option('--pool <id>', 'try the merchant pool of this name first')
    .option('--fallback <steps>', 'tiers or merchant:ID, separated by commas, instead of the default chain')
    .option('--max-wait <duration>', 'how long a call may wait for a pod, like 20s')
    .option('--max-waiting <n>', 'most calls that wait at once', wholeNumber(...holdLimits.maxWaiting))
    .option('--priority <n>', 'a higher one is served first', wholeNumber(...holdLimits.priority))
    .option('--weight <n>', 'share among merchants of one priority', wholeNumber(...holdLimits.weight))
    .option('--max-calls <n>', 'most live calls', wholeNumber(...holdLimits.maxCalls))
    .option('--fallback-number <number>', 'connect a caller whose wait expires to this number');
  answerWith(command, cli, async (api) => {
    const [id = '', json] = command.args;
    const input = await readInput(cli, json, command.opts<Options>());
    const { config, problems } = parseMerchantConfig(input, id);
    if (!config) throw new Failure('usage', 'invalid merchant configuration:', problems.map(clean));
    const { body } = await api.send<Merchant>(`/merchants/${encodeURIComponent(id)}`, {
      method: 'PUT',
      body: config,
      has: 'merchant_id',
    });
    return { document: body, text: showMerchant(body, cli.output.paint), warnings: skippedSteps(body) };
  });
}

async function readInput(cli: Cli, json: string | undefined, options: Options): Promise<unknown> {
  const { tier, pool, fallback, maxWait, maxWaiting, priority, weight, maxCalls, fallbackNumber } = options;
  const given = { tier, pool, fallback, maxWait, maxWaiting, priority, weight, maxCalls, fallbackNumber };
  if (Object.values(given).some((value) => value !== undefined) === (json !== undefined)) {
    throw new Failure(
      'usage',
      'give either JSON or at least one option, like --tier or --max-calls; {} clears the entry',
    );
  }
  if (json !== undefined) return (await readJson(cli, json)).value;
  const steps = fallback?.split(',').map((step) => step.trim());
  const hold =
    maxWait === undefined && maxWaiting === undefined
      ? undefined
      : defined({ max_wait: maxWait, max_waiting: maxWaiting });
  return defined({
    tier,
    pool: pool?.replace(/^merchant:/, ''),
    fallback: steps,
    hold,
    priority,
    weight,
    max_calls: maxCalls,
    fallback_number: fallbackNumber,
  });
}

const defined = (fields: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

function merchantsDelete(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('delete').argument('<id>', 'id of the merchant'), {
    summary: 'delete the configuration of a merchant: its calls use the default chain',
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
      text: `merchant ${clean(body.merchant_id)} deleted; its calls use the default chain\n`,
    };
  });
}

function merchantsExport(parent: Command, cli: Cli): void {
  const command = describeOperator(
    parent.command('export').argument('[file]', 'target file (default: standard output)'),
    {
      summary: 'write the configuration of all merchants as JSON, for a backup',
      about:
        '`merchants import` reads it. It does not contain tiers: use `tiers get --json` and `tiers set`.',
      examples: [
        ['merchants export merchants.json', ''],
        ['merchants export | gzip > merchants.json.gz', ''],
      ],
    },
  );
  answerWith(command, cli, async (api) => {
    const { body } = await api.send<{ merchants: Merchant[] }>('/merchants', { has: 'merchants' });
    const document = { merchants: configurations(body.merchants) };
    const [file] = command.args;
    if (file === undefined) return { document, text: `${toJson(document)}\n` };
    await writeAtomically(file, `${toJson(document)}\n`);
    return { document, text: `${count(body.merchants.length, 'merchant')} written to ${file}\n` };
  });
}

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

function merchantsImport(parent: Command, cli: Cli): void {
  const argument = 'a file, - for standard input, or the JSON itself';
  const described = describeOperator(parent.command('import').argument('<file|-|json>', argument), {
    summary: 'write merchants from a backup; a dry run unless --apply is given',
    about:
      'Everything is checked first, and all problems are reported together. Then each merchant that differs is written atomically, in sequence. A failure says how many were written; the same command writes the rest. Merchants that are not in the file do not change.',
    examples: [
      ['merchants import merchants.json', 'show what would change'],
      ['merchants import merchants.json --apply', 'do it'],
      ['gunzip -c merchants.json.gz | smart-router merchants import - --apply', ''],
    ],
  });
  const command = withApply(described);
  answerWith(command, cli, async (api) => {
    const { apply = false } = command.opts<{ apply?: true }>();
    const { value, from } = await readJson(cli, command.args[0] ?? '', maxBackupBytes);
    const wanted = readConfigurations(value, from);
    const { body } = await api.send<{ merchants: Merchant[] }>('/merchants', { has: 'merchants' });
    const before = configurations(body.merchants);
    const changes = changesOf(before, wanted);
    const kept = Object.keys(before).filter((id) => !Object.hasOwn(wanted, id));
    const toWrite = changes.filter(({ change }) => change !== 'unchanged');
    let written = 0;
    try {
      for (const { merchant_id, after } of apply ? toWrite : []) {
        const path = `/merchants/${encodeURIComponent(merchant_id)}`;
        await api.send<Merchant>(path, { method: 'PUT', body: after, has: 'merchant_id' });
        written += 1;
      }
    } catch (error) {
      const { code, message } = toFailure(error);
      const failed = toWrite[written]?.merchant_id;
      const done = `${written} of ${count(toWrite.length, 'merchant')} written; ${failed} failed: ${message}`;
      return outcomeOf(changes, kept, !apply, cli.output.paint, new Failure(code, `${done} Run it again.`));
    }
    return outcomeOf(changes, kept, !apply, cli.output.paint);
  });
}

const changeColours: Readonly<Record<Change['change'], Colour | undefined>> = {
  added: 'green',
  changed: 'yellow',
  unchanged: 'dim',
};

function outcomeOf(
  changes: readonly Change[],
  kept: readonly string[],
  dryRun: boolean,
  paint: Paint,
  failure?: Failure,
): Outcome {
  const of = (change: Change['change']) => changes.filter((one) => one.change === change).length;
  const counts = { added: of('added'), changed: of('changed'), unchanged: of('unchanged') };
  const rows = changes.map(({ merchant_id, change, before, after }): Cell[] => [
    merchant_id,
    { text: change, colour: changeColours[change] },
    before === null ? '-' : JSON.stringify(before),
    JSON.stringify(after),
  ]);
  const columns = ['MERCHANT', 'CHANGE', 'BEFORE', 'AFTER'];
  const total = `${counts.added} added, ${counts.changed} changed, ${counts.unchanged} unchanged`;
  const rest = kept.length > 0 ? ` ${count(kept.length, 'merchant')} not in the file: unchanged.` : '';
  const result = dryRun ? `Dry run: ${total}. Nothing was changed; --apply does it.` : `Done: ${total}.`;
  return {
    document: { dry_run: dryRun, ...counts, not_in_file: kept, merchants: changes },
    text: `${rows.length > 0 ? `${table(columns, rows, paint)}\n` : ''}${failure ? '' : `${result}${rest}\n`}`,
    failure,
  };
}

export type Configurations = Record<string, MerchantConfig>;

export interface Change {
  readonly merchant_id: string;
  readonly change: 'added' | 'changed' | 'unchanged';
  /** Null for an added merchant. */
  readonly before: MerchantConfig | null;
  readonly after: MerchantConfig;
}

/** The configuration without the fields that the router computes. */
export function configurations(merchants: readonly Merchant[]): Configurations {
  const entries = merchants.map(({ merchant_id, chain: _, skipped: __, ...config }) => [merchant_id, config]);
  return Object.fromEntries(entries) as Configurations;
}

/** Throws with all problems together. */
export function readConfigurations(value: unknown, from: string): Configurations {
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

export function changesOf(before: Configurations, after: Configurations): Change[] {
  return Object.entries(after).map(([merchant_id, config]) => {
    const old = Object.hasOwn(before, merchant_id) ? (before[merchant_id] ?? null) : null;
    const isSame = isDeepStrictEqual(old, config);
    const change = old === null ? 'added' : isSame ? 'unchanged' : 'changed';
    return { merchant_id, change, before: old, after: config };
  });
}

export function showMerchants(merchants: readonly Merchant[], paint: Paint): string {
  const hasLimits = merchants.some((merchant) => limitsText(merchant) !== '-');
  const rows = merchants.map((merchant): Cell[] => [
    merchant.merchant_id,
    merchant.tier ?? '-',
    merchant.pool ?? '-',
    merchant.fallback?.join(',') || '-',
    ...(hasLimits ? [limitsText(merchant)] : []),
    merchant.chain.join(' > '),
  ]);
  const columns = ['MERCHANT', 'TIER', 'POOL', 'FALLBACK', ...(hasLimits ? ['LIMITS'] : []), 'CHAIN'];
  return table(columns, rows, paint);
}

/** How its calls wait and are limited. */
function limitsText({ hold, priority, weight, max_calls, fallback_number }: Merchant): string {
  const parts = [
    ...(max_calls === undefined ? [] : [`max_calls ${max_calls}`]),
    ...(hold ? [`hold ${holdText(hold)}`] : []),
    ...(priority === undefined ? [] : [`priority ${priority}`]),
    ...(weight === undefined ? [] : [`weight ${weight}`]),
    ...(fallback_number === undefined ? [] : [`then ${fallback_number}`]),
  ];
  return parts.join(', ') || '-';
}

export function showMerchant(merchant: Merchant, paint: Paint): string {
  const { merchant_id, tier, pool, fallback, chain } = merchant;
  return facts(
    [
      ['merchant', merchant_id],
      ['tier', tier ?? '-'],
      ['pool', pool ?? '-'],
      ['fallback', fallback?.join(', ') || '-'],
      ['limits', limitsText(merchant)],
      ['chain', chain.join(' > ')],
    ],
    paint,
  );
}

/** Steps that name an unknown tier or pool: calls skip them. */
export function skippedSteps({ merchant_id, skipped }: Merchant): string[] {
  return skipped.map(({ step, reason }) => clean(`${merchant_id}: ${step} is skipped: ${reason}`));
}
