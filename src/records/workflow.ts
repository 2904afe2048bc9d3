/**
 * A workflow: a status column of a team's table as a state machine, and the function that processes a record.
 * `defineWorkflow` reports every problem of a definition at once, before anything touches the database.
 */
import type { PoolClient } from 'pg';
import { formatDuration, parseDuration } from '../config/durations.js';
import { ConfigError } from '../errors.js';
import { type OrderColumn, parseName, parseOrder } from './identifiers.js';

export interface RecordContext {
  /**
   * Aborts when the claim is lost or has timed out. Work that ends later still counts if the claim holds; the recovery
   * takes the record 30 s after the timeout at the earliest.
   */
  readonly signal: AbortSignal;
  /** Stores a note with the claim. It survives a crash and is shown with a stuck record. */
  trace(note: string): void;
  /**
   * Runs the handler's writes in a transaction that commits only if the claim still holds. `work` runs again after a
   * conflict with another transaction (40001, 40P01) or a broken session, so keep its effects inside the database.
   * Waits while the database is unreachable, until the record times out.
   */
  tx<T>(work: (client: PoolClient) => Promise<T>): Promise<T>;
}

export type StuckPolicy = 'requeue' | 'fail' | 'hold';
/** Milliseconds, or text like `30s`, `5m`, `1h`. */
export type DurationLike = number | string;

// biome-ignore lint/suspicious/noExplicitAny: a row has the columns of the team's table.
export type Row = Record<string, any>;

export interface WorkflowDefinition<R extends Row = Row> {
  name: string;
  /** As in SQL: `pages`, `crm.pages`, `"Team"."Pages"`. */
  table: string;
  /** The primary key, or another unique column. Default: `id`. */
  id?: string;
  status: { column: string; queued: string; processing: string; completed: string; failed: string };
  /** Column for the error message; without it the message is only logged. */
  error?: string;
  /** The time of the last change of status. */
  touchedAt: string;
  /** Records per claim. Default: 100. */
  batchSize?: number;
  /** Records processed at once. Default: 10. */
  concurrency?: number;
  /** Columns as in ORDER BY. Default: `touchedAt`. */
  orderBy?: string;
  /** Maximum time for one record. Default: 5 minutes. */
  timeout?: DurationLike;
  /** Of timestamp columns without a time zone. Default: `UTC`. */
  timeZone?: string;
  stuck?: {
    /** For rows in Processing without a claim. Default: ZOMBIE_STUCK_THRESHOLD_MINUTES, an hour. */
    after?: DurationLike;
    /** Default: `requeue`. */
    policy?: StuckPolicy;
    /** Resets before the record goes to Failed. Default: 3. */
    maxResets?: number;
  };
  /** At most `max` records with the same value of the column `key` are claimed at once, over all workers. */
  limit?: { key: string; max: number };
  /** Queues a failed record again, after a pause that doubles. Default: it is Failed at once. */
  retry?: {
    /** Retries before the record goes to Failed. */
    max: number;
    /** Pause before the first retry. Default: 10 s. */
    backoff?: DurationLike;
    /** The longest pause. Default: 1 h. */
    maxBackoff?: DurationLike;
  };
  process(record: R, ctx: RecordContext): Promise<void> | void;
}

export interface Workflow<R extends Row = Row> {
  readonly name: string;
  readonly table: readonly string[];
  readonly id: string;
  readonly status: Readonly<WorkflowDefinition['status']>;
  readonly error: string | undefined;
  readonly touchedAt: string;
  readonly batchSize: number;
  readonly concurrency: number;
  readonly order: readonly OrderColumn[];
  readonly timeoutMs: number;
  readonly timeZone: string;
  readonly stuck: {
    /** Undefined: the default of the recovery. */
    readonly afterMs: number | undefined;
    readonly policy: StuckPolicy;
    readonly maxResets: number;
  };
  readonly limit: { readonly key: string; readonly max: number } | undefined;
  readonly retry:
    | { readonly max: number; readonly backoffMs: number; readonly maxBackoffMs: number }
    | undefined;
  readonly process: WorkflowDefinition<R>['process'];
}

// biome-ignore lint/suspicious/noExplicitAny: workflows of different rows stand in one list.
export type AnyWorkflow = Workflow<any>;

/** After how long a claim or a row counts as lost. */
export interface Bounds {
  /** A worker without a heartbeat for this long is dead. */
  deadAfterMs: number;
  /** Added to a claim's timeout before the recovery takes it. */
  timeoutGraceMs: number;
  /** For rows in Processing without a claim. */
  stuckAfterMs: number;
}

export const defaultBounds: Bounds = {
  deadAfterMs: 45_000,
  timeoutGraceMs: 30_000,
  stuckAfterMs: 3_600_000,
};

/** Never shorter than the timeout: a record still being processed must not be given to a second worker. */
export function stuckAfterOf(
  { stuck, timeoutMs }: Pick<Workflow, 'timeoutMs' | 'stuck'>,
  generalMs: number,
): number {
  return stuck.afterMs ?? Math.max(generalMs, timeoutMs);
}

/** Reads an option of a program; throws a ConfigError if it is not a duration. */
export function durationMs(value: DurationLike | undefined, fallbackMs: number): number {
  if (value === undefined) return fallbackMs;
  const found = typeof value === 'number' ? value : parseDuration(value);
  if (found !== undefined && Number.isFinite(found) && found > 0) return found;
  throw new ConfigError([
    `${JSON.stringify(value)} is not a duration: use milliseconds, or text like 30s, 5m, 1h`,
  ]);
}

const options = {
  workflow: [
    ...['name', 'table', 'id', 'status', 'error', 'touchedAt', 'batchSize', 'concurrency', 'orderBy'],
    ...['timeout', 'timeZone', 'stuck', 'limit', 'retry', 'process'],
  ],
  status: ['column', 'queued', 'processing', 'completed', 'failed'],
  stuck: ['after', 'policy', 'maxResets'],
  limit: ['key', 'max'],
  retry: ['max', 'backoff', 'maxBackoff'],
};
const isName = (value: unknown): value is string =>
  typeof value === 'string' && /^[A-Za-z0-9_.-]{1,64}$/.test(value);
/** Keeps a problem on one line for any option name. */
const shown = (key: string) => (/^\w{1,64}$/.test(key) ? key : JSON.stringify(key.slice(0, 64)));
const maxDurationMs = 7 * 24 * 3_600_000;

/** Throws a ConfigError with every problem. */
export function defineWorkflow<R extends Row = Row>(definition: WorkflowDefinition<R>): Workflow<R> {
  const problems: string[] = [];
  if (typeof definition !== 'object' || definition === null)
    throw new ConfigError(['workflow: the definition must be an object']);
  const label = isName(definition.name) ? `workflow ${definition.name}` : 'workflow';
  const problem = (text: string) => problems.push(`${label}: ${text}`);
  const checkOptions = (given: unknown, known: readonly string[], prefix: string) => {
    if (given === undefined) return;
    if (typeof given !== 'object' || given === null) problem(`${prefix.slice(0, -1)} must be an object`);
    else
      for (const key of Object.keys(given))
        if (!known.includes(key))
          problem(`${prefix}${shown(key)} is not an option; the options are ${known.join(', ')}`);
  };
  const count = (value: number | undefined, fallback: number, min: number, max: number, name: string) => {
    const number = value ?? fallback;
    if (!Number.isInteger(number) || number < min || number > max)
      problem(`${name} must be a whole number from ${min} to ${max}`);
    return number;
  };
  const duration = (value: DurationLike, name: string): number => {
    const ms =
      typeof value === 'string' ? parseDuration(value) : typeof value === 'number' ? value : undefined;
    if (ms !== undefined && ms >= 1 && ms <= maxDurationMs) return Math.round(ms);
    problem(`${name} must be a duration from 1ms to 168h, in milliseconds or like 30s, 5m, 1h`);
    return 1;
  };
  const column = (value: unknown, name: string): string => {
    const parts = typeof value === 'string' ? parseName(value, 1) : undefined;
    if (!parts) problem(`${name} must be the name of a column, as in SQL`);
    return parts?.[0] ?? '';
  };

  checkOptions(definition, options.workflow, '');
  checkOptions(definition.status, options.status, 'status.');
  for (const part of ['stuck', 'limit', 'retry'] as const)
    checkOptions(definition[part], options[part], `${part}.`);
  if (!isName(definition.name)) problem('name must be 1 to 64 of A-Z a-z 0-9 _ . -');
  const table = typeof definition.table === 'string' ? parseName(definition.table, 2) : undefined;
  if (!table) problem('table must be the name of a table, as in SQL, with or without its schema');
  const status = { ...definition.status, column: column(definition.status?.column, 'status.column') };
  const states = ['queued', 'processing', 'completed', 'failed'] as const;
  for (const key of states)
    if (typeof status[key] !== 'string' || status[key] === '') problem(`status.${key} must be a text`);
  if (new Set(states.map((key) => status[key])).size < states.length)
    problem('the four values of status must differ');
  if (typeof definition.process !== 'function') problem('process must be a function');
  const touchedAt = column(definition.touchedAt, 'touchedAt');
  const { orderBy } = definition;
  const order =
    orderBy === undefined
      ? [{ column: touchedAt, rest: '' }]
      : typeof orderBy === 'string' && parseOrder(orderBy);
  if (!order) problem('orderBy must be columns with ASC or DESC, like priority DESC, created_at');
  const timeoutMs = duration(definition.timeout ?? 300_000, 'timeout');
  const stuck = { ...definition.stuck };
  const timeZone = definition.timeZone ?? 'UTC';
  if (typeof timeZone !== 'string' || timeZone === '') problem('timeZone must be a text like Europe/Berlin');
  const afterMs = stuck.after === undefined ? undefined : duration(stuck.after, 'stuck.after');
  if (afterMs !== undefined && afterMs < timeoutMs)
    problem(
      `stuck.after (${formatDuration(afterMs)}) must not be shorter than timeout (${formatDuration(timeoutMs)}): a record still being processed would be given to a second worker`,
    );
  const policy = stuck.policy ?? 'requeue';
  if (!['requeue', 'fail', 'hold'].includes(policy)) problem('stuck.policy must be requeue, fail or hold');

  // Anything else was reported above.
  const partOf = <T>(given: T) => (typeof given === 'object' && given !== null ? given : undefined);
  const [limit, retry] = [partOf(definition.limit), partOf(definition.retry)];
  const backoffMs = duration(retry?.backoff ?? 10_000, 'retry.backoff');
  const maxBackoffMs = duration(retry?.maxBackoff ?? Math.max(3_600_000, backoffMs), 'retry.maxBackoff');
  if (maxBackoffMs < backoffMs) problem('retry.maxBackoff must not be shorter than retry.backoff');
  const key = limit && column(limit.key, 'limit.key');
  if (key !== undefined && [status.column, touchedAt].includes(key))
    problem('limit.key must not be the column of status or touchedAt: a claim changes it');
  const required = (value: unknown) => (typeof value === 'number' ? value : Number.NaN);

  const workflow: Workflow<R> = {
    name: definition.name,
    table: table ?? [],
    id: column(definition.id ?? 'id', 'id'),
    status,
    error: definition.error === undefined ? undefined : column(definition.error, 'error'),
    touchedAt,
    batchSize: count(definition.batchSize, 100, 1, 10_000, 'batchSize'),
    concurrency: count(definition.concurrency, 10, 1, 1000, 'concurrency'),
    order: order || [],
    timeoutMs,
    timeZone,
    stuck: { afterMs, policy, maxResets: count(stuck.maxResets, 3, 0, 1000, 'stuck.maxResets') },
    limit: limit && {
      key: key ?? '',
      max: count(required(limit.max), 0, 1, 10_000, 'limit.max'),
    },
    retry: retry && {
      max: count(required(retry.max), 0, 1, 1000, 'retry.max'),
      ...{ backoffMs, maxBackoffMs },
    },
    process: definition.process,
  };
  if (problems.length > 0) throw new ConfigError(problems);
  return workflow;
}
