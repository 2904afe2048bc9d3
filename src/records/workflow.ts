/**
 * A workflow: a status column of one of the team's tables as a state machine, and the function that does the work.
 * What is wrong with a definition is told at once, all of it, before anything touches the database.
 */
import type { PoolClient } from 'pg';
import { formatDuration, parseDuration } from '../config/durations.js';
import { ConfigError } from '../errors.js';
import { type OrderTerm, parseName, parseOrder } from './identifiers.js';

export interface RecordContext {
  /**
   * Aborts when the claim is lost or has timed out. What is done afterwards counts only if nobody has taken the record
   * by then; nobody does before 30 s after the timeout.
   */
  readonly signal: AbortSignal;
  /** Leaves a note of what is being done; it survives a crash and shows up where the record is found stuck. */
  trace(note: string): void;
  /**
   * Runs the handler's own writes in a transaction that commits only if the claim still holds. `work` runs again after
   * a conflict with another transaction (40001, 40P01) or a session that broke, so its effects belong inside the
   * database. While the database cannot be reached it waits, until the record's time is over.
   */
  tx<T>(work: (client: PoolClient) => Promise<T>): Promise<T>;
}

export type StuckPolicy = 'requeue' | 'fail' | 'hold';
/** Milliseconds, or text like `30s`, `5m`, `1h`. */
export type DurationLike = number | string;

// biome-ignore lint/suspicious/noExplicitAny: a row has whatever columns the team's table has.
export type Row = Record<string, any>;

export interface WorkflowDefinition<R extends Row = Row> {
  name: string;
  /** As in SQL: `pages`, `crm.pages`, `"Team"."Pages"`. */
  table: string;
  /** The primary key, or another unique column. Default: `id`. */
  id?: string;
  status: { column: string; queued: string; processing: string; completed: string; failed: string };
  /** Where the message of a failure goes; left out, it is only logged. */
  error?: string;
  /** The time of the last change of status. */
  touchedAt: string;
  /** Records per claim. Default: 100. */
  batchSize?: number;
  /** Records processed at once. Default: 10. */
  concurrency?: number;
  /** Columns as in ORDER BY. Default: `touchedAt`. */
  orderBy?: string;
  /** Longest time for one record. Default: 5 minutes. */
  timeout?: DurationLike;
  /** Of timestamp columns without a time zone. Default: `UTC`. */
  timeZone?: string;
  stuck?: {
    /** For rows in Processing that carry no claim of ours. Default: ZOMBIE_STUCK_THRESHOLD_MINUTES, an hour. */
    after?: DurationLike;
    /** Default: `requeue`. */
    policy?: StuckPolicy;
    /** After so many resets it goes to Failed. Default: 3. */
    maxResets?: number;
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
  readonly order: readonly OrderTerm[];
  readonly timeoutMs: number;
  readonly timeZone: string;
  readonly stuck: {
    /** Undefined: whoever runs the recovery decides. */
    readonly afterMs: number | undefined;
    readonly policy: StuckPolicy;
    readonly maxResets: number;
  };
  readonly process: (record: R, ctx: RecordContext) => Promise<void> | void;
}

const known = {
  workflow: [
    'name',
    'table',
    'id',
    'status',
    'error',
    'touchedAt',
    'batchSize',
    'concurrency',
    'orderBy',
    'timeout',
    'timeZone',
    'stuck',
    'process',
  ],
  status: ['column', 'queued', 'processing', 'completed', 'failed'],
  stuck: ['after', 'policy', 'maxResets'],
};
const isName = (value: unknown): value is string =>
  typeof value === 'string' && /^[A-Za-z0-9_.-]{1,64}$/.test(value);
/** A problem is one line, whatever the option is called. */
const shown = (key: string) => (/^\w{1,64}$/.test(key) ? key : JSON.stringify(key.slice(0, 64)));
const longestMs = 7 * 24 * 3_600_000;

/** Throws a ConfigError with every problem. */
export function defineWorkflow<R extends Row = Row>(definition: WorkflowDefinition<R>): Workflow<R> {
  const problems: string[] = [];
  if (typeof definition !== 'object' || definition === null)
    throw new ConfigError(['workflow: the definition must be an object']);
  const label = isName(definition.name) ? `workflow ${definition.name}` : 'workflow';
  const problem = (text: string) => problems.push(`${label}: ${text}`);
  const unknown = (given: unknown, names: readonly string[], at: string) => {
    if (given === undefined) return;
    if (typeof given !== 'object' || given === null) problem(`${at.slice(0, -1)} must be an object`);
    else
      for (const key of Object.keys(given))
        if (!names.includes(key)) problem(`${at}${shown(key)} is no option; there are ${names.join(', ')}`);
  };
  const count = (value: number | undefined, fallback: number, least: number, most: number, name: string) => {
    const number = value ?? fallback;
    if (!Number.isInteger(number) || number < least || number > most)
      problem(`${name} must be a whole number from ${least} to ${most}`);
    return number;
  };
  const duration = (value: DurationLike, name: string): number => {
    const ms =
      typeof value === 'string' ? parseDuration(value) : typeof value === 'number' ? value : undefined;
    if (ms !== undefined && ms >= 1 && ms <= longestMs) return Math.round(ms);
    problem(`${name} must be a time from 1ms to 168h, in milliseconds or like 30s, 5m, 1h`);
    return 1;
  };
  const column = (value: unknown, name: string): string => {
    const parts = typeof value === 'string' ? parseName(value, 1) : undefined;
    if (!parts) problem(`${name} must be the name of a column, as in SQL`);
    return parts?.[0] ?? '';
  };

  unknown(definition, known.workflow, '');
  unknown(definition.status, known.status, 'status.');
  unknown(definition.stuck, known.stuck, 'stuck.');
  if (!isName(definition.name)) problem('name must be 1 to 64 of A-Z a-z 0-9 _ . -');
  const table = typeof definition.table === 'string' ? parseName(definition.table, 2) : undefined;
  if (!table) problem('table must be the name of a table, as in SQL, with or without its schema');
  const status = { ...definition.status, column: column(definition.status?.column, 'status.column') };
  for (const key of ['queued', 'processing', 'completed', 'failed'] as const) {
    if (typeof status[key] !== 'string' || status[key] === '') problem(`status.${key} must be a text`);
  }
  const words = [status.queued, status.processing, status.completed, status.failed];
  if (new Set(words).size < words.length) problem('the four values of status must differ');
  if (typeof definition.process !== 'function') problem('process must be a function');
  const touchedAt = column(definition.touchedAt, 'touchedAt');
  const order =
    definition.orderBy === undefined
      ? [{ column: touchedAt, rest: '' }]
      : typeof definition.orderBy === 'string'
        ? parseOrder(definition.orderBy)
        : undefined;
  if (!order) problem('orderBy must be columns with ASC or DESC, like priority DESC, created_at');
  const timeoutMs = duration(definition.timeout ?? 300_000, 'timeout');
  const stuck = { ...definition.stuck };
  const timeZone = definition.timeZone ?? 'UTC';
  if (typeof timeZone !== 'string' || timeZone === '') problem('timeZone must be a text like Europe/Berlin');
  const afterMs = stuck.after === undefined ? undefined : duration(stuck.after, 'stuck.after');
  if (afterMs !== undefined && afterMs < timeoutMs) {
    problem(
      `stuck.after (${formatDuration(afterMs)}) must not be shorter than timeout (${formatDuration(timeoutMs)}): work that still runs would be given to a second worker`,
    );
  }
  const policy = stuck.policy ?? 'requeue';
  if (!['requeue', 'fail', 'hold'].includes(policy)) problem('stuck.policy must be requeue, fail or hold');

  const workflow: Workflow<R> = {
    name: definition.name,
    table: table ?? [],
    id: column(definition.id ?? 'id', 'id'),
    status,
    error: definition.error === undefined ? undefined : column(definition.error, 'error'),
    touchedAt,
    batchSize: count(definition.batchSize, 100, 1, 10_000, 'batchSize'),
    concurrency: count(definition.concurrency, 10, 1, 1000, 'concurrency'),
    order: order ?? [],
    timeoutMs,
    timeZone,
    stuck: { afterMs, policy, maxResets: count(stuck.maxResets, 3, 0, 1000, 'stuck.maxResets') },
    process: definition.process,
  };
  if (problems.length > 0) throw new ConfigError(problems);
  return workflow;
}
