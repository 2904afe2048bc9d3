/**
 * What a person does with records: looks, brings back, tries again. The same desk for the API and the command line.
 *
 * Promises: nothing that a living worker holds within its timeout and the grace is touched, whoever asks; what is left
 * alone comes back with the reason; a dry run changes nothing, and counts what would be done, all of it. Without ids,
 * `reset` is one round of the recovery, with its policies and budgets, but takes nothing from a living worker, however
 * long it takes. With ids it is the person who decides: neither the age nor the budget nor the policy `hold` keeps a
 * record back, nor a worker that is past the timeout; its count of resets begins anew. Both are noted as `by_hand`.
 *
 * Fails with an AppError that names what is wrong: the workflow, an id, or a database that gives no session.
 */
import type { Pool } from 'pg';
import { type Clock, systemClock } from '../clock.js';
import { AppError, ConfigError, messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import { defaultBounds, stuckAfterOf } from './bounds.js';
import { mostIds } from './documents.js';
import { type Inspection, inspect } from './inspect.js';
import { notify } from './listener.js';
import { assertMigrated } from './loop.js';
import type { RecordObserver } from './observer.js';
import { grantFor } from './permissions.js';
import { type RecentReset, type ResetCount, recentResets } from './recent.js';
import { createRecovery, type Recovery } from './recovery.js';
import { isSessionFault, Sessions } from './sessions.js';
import { RecordStore, type Recovered } from './store.js';
import { openTable, type Table } from './table.js';
import type { Workflow } from './workflow.js';

export interface DeskOptions {
  pool: Pool;
  // biome-ignore lint/suspicious/noExplicitAny: workflows of different rows at one desk.
  workflows: readonly Workflow<any>[];
  /** For workflows that do not say it themselves. */
  stuckAfterMs: number;
  log: Logger;
  observer?: RecordObserver;
  clock?: Clock;
  /** As the recovery has them. Default: 45 s and 30 s. */
  deadAfterMs?: number;
  timeoutGraceMs?: number;
}

/** Why a record that was named is left as it is. */
export type LeftAlone = 'live_claim' | 'not_found' | 'not_processing' | 'not_failed';

export interface Handled {
  id: string;
  outcome: Recovered['outcome'] | 'skipped';
  reason: Recovered['reason'] | LeftAlone;
  /** Before this one. */
  resets: number;
  stuckSeconds: number | null;
  worker: string | null;
  trace: string | null;
}

export interface HandledCounts {
  workflow: string;
  /** Nothing was changed: this is what would be. */
  dryRun: boolean;
  requeued: number;
  failed: number;
  /** What waits for a person afterwards, also what did before. */
  held: number;
  skipped: number;
  /** How many are concerned: all of the above. */
  total: number;
  /** At most 1,000 of them. */
  records: Handled[];
}

interface LookedAt {
  record_id: string;
  status: string | null;
  resets: number;
  trace: string | null;
  worker: string | null;
  is_processing: boolean;
  is_failed: boolean;
  is_live: boolean;
  stuck_seconds: number | null;
}

export interface History {
  /** Resets of the last seven days. */
  timedOut: number;
  deadWorker: number;
  unclaimed: number;
  /** The record that somebody has worked on for longest, of those that live. */
  longestSeconds: number | null;
}

const mostShown = 1000;
/** A hundred years beyond its timeout: only a worker's silence counts. */
const neverMs = 100 * 365 * 86_400_000;

export interface FailedRecord {
  id: string;
  /** Null also where the workflow has no column for it. */
  error: string | null;
  failedSeconds: number | null;
}

interface FailedRow {
  record_id: string;
  error: string | null;
  failed_seconds: string | null;
}

export class Desk {
  readonly #options: Required<Omit<DeskOptions, 'observer'>> & Pick<DeskOptions, 'observer'>;
  readonly #sessions: Sessions;
  #recovery: Recovery | undefined;

  constructor(options: DeskOptions) {
    this.#options = { clock: systemClock, ...defaultBounds, ...options };
    this.#sessions = new Sessions({ pool: options.pool, clock: this.#options.clock });
  }

  /** Every workflow's numbers; one that cannot be looked at fails the whole. */
  async list(): Promise<Inspection[]> {
    const found: Inspection[] = [];
    for (const { name } of this.#options.workflows) found.push(await this.look(name, 1));
    return found;
  }

  /** One workflow's numbers, with its oldest stuck records. */
  async look(name: string, most = mostShown): Promise<Inspection> {
    const { pool, stuckAfterMs, deadAfterMs, timeoutGraceMs } = this.#options;
    const workflow = this.workflow(name);
    return this.#told(() => inspect(pool, workflow, { deadAfterMs, timeoutGraceMs, stuckAfterMs, most }));
  }

  /** Failed records, the newest first. */
  async failed(name: string, most: number): Promise<FailedRecord[]> {
    const workflow = this.workflow(name);
    return this.#told(async () => {
      const { queries } = await openTable(this.#sessions, workflow);
      const { rows } = await this.#sessions.query<FailedRow>(queries.listFailed, [most]);
      return rows.map(({ record_id, error, failed_seconds }) => ({
        id: record_id,
        error,
        failedSeconds: failed_seconds === null ? null : Number(failed_seconds),
      }));
    });
  }

  /** Records that had failed `sinceMs` ago, the oldest first, without those in `except`. */
  async failedIds(name: string, most: number, sinceMs: number, except: readonly string[]): Promise<string[]> {
    const workflow = this.workflow(name);
    return this.#told(async () => {
      const { queries } = await openTable(this.#sessions, workflow);
      const args = [most, sinceMs, except];
      const { rows } = await this.#sessions.query<{ record_id: string }>(queries.listFailedIds, args);
      return rows.map(({ record_id }) => record_id);
    });
  }

  async history(name: string): Promise<History> {
    const workflow = this.workflow(name);
    return this.#told(async () => {
      const { queries, workflowId } = await openTable(this.#sessions, workflow);
      const { rows } = await this.#sessions.query<Record<string, string | null>>(queries.byHandHistory, [
        workflowId,
        this.#options.deadAfterMs,
      ]);
      const { timed_out, dead_worker, unclaimed, longest_seconds } = rows[0] ?? {};
      return {
        timedOut: Number(timed_out),
        deadWorker: Number(dead_worker),
        unclaimed: Number(unclaimed),
        longestSeconds: longest_seconds == null ? null : Number(longest_seconds),
      };
    });
  }

  /** What came back in the last `lastMs`, by whomever: the newest of all workflows, and how many. */
  async recent(lastMs: number, most: number): Promise<{ counts: ResetCount[]; resets: RecentReset[] }> {
    const names = this.#options.workflows.map(({ name }) => name);
    return this.#told(() => recentResets(this.#sessions, names, lastMs, most));
  }

  /** Back to Queued: the records named, or else everything that is stuck. */
  async reset(
    name: string,
    { ids, dryRun }: { ids?: readonly string[] | undefined; dryRun: boolean },
  ): Promise<HandledCounts> {
    const workflow = this.workflow(name);
    if (ids) return this.#byHand(workflow, ids, dryRun, 'byHandReset');
    return this.#told(async () => {
      const done = dryRun ? undefined : await this.#recover().runOnce({ workflow: name });
      const { would, held, kept, late } = await this.#stuck(workflow);
      const { requeued, failed } = done ?? would.wouldBe;
      const allHeld = held + (done ? 0 : would.wouldBe.held);
      const listed = new Set(done?.records.map(({ id }) => id));
      const waiting = done
        ? would.records.filter(({ id, isHeld }) => isHeld && !listed.has(id))
        : would.records;
      return {
        workflow: name,
        dryRun,
        requeued,
        failed,
        held: allHeld,
        skipped: late,
        total: requeued + failed + allHeld + late,
        records: [...(done?.records ?? []), ...waiting, ...kept].slice(0, mostShown),
      };
    });
  }

  /** What a reset without ids is for, what is `held` already, and what it leaves: `late`, but their worker lives. */
  async #stuck(workflow: Workflow) {
    const { stuckAfterMs, deadAfterMs: deadMs, timeoutGraceMs } = this.#options;
    await assertMigrated(this.#sessions);
    const store = new RecordStore(this.#sessions, await openTable(this.#sessions, workflow));
    const afterMs = stuckAfterOf(workflow, stuckAfterMs);
    const all = await store.stuck(mostShown, { deadMs, afterMs, graceMs: timeoutGraceMs });
    const would = await store.stuck(mostShown, { deadMs, afterMs, graceMs: neverMs });
    const { requeued, failed, held } = would.wouldBe;
    const taken = new Set(would.records.map(({ id }) => id));
    const kept = all.records
      .filter(({ id, isHeld }) => !isHeld && !taken.has(id))
      .map((record): Handled => ({ ...record, outcome: 'skipped', reason: 'live_claim' }));
    const late = Math.max(0, all.total - would.total);
    return { would, held: would.total - requeued - failed - held, kept, late };
  }

  /** One for the desk's life, because it listens to the pool for as long as that lives. */
  #recover(): Recovery {
    const { pool, workflows, log, observer, clock, stuckAfterMs, deadAfterMs } = this.#options;
    this.#recovery ??= createRecovery({
      pool,
      workflows,
      log,
      ...(observer ? { observer } : {}),
      clock,
      stuckAfter: stuckAfterMs,
      deadAfter: deadAfterMs,
      timeoutGrace: neverMs,
      byHand: true,
    });
    return this.#recovery;
  }

  /** From Failed back to Queued. */
  async retry(
    name: string,
    { ids, dryRun }: { ids: readonly string[]; dryRun: boolean },
  ): Promise<HandledCounts> {
    return this.#byHand(this.workflow(name), ids, dryRun, 'byHandRetry');
  }

  workflow(name: string): Workflow {
    const found = this.#options.workflows.find((workflow) => workflow.name === name);
    if (found) return found;
    const known = this.#options.workflows.map((workflow) => workflow.name).join(', ');
    throw new AppError(
      'workflow_not_found',
      `there is no workflow ${JSON.stringify(name)}: ${known === '' ? 'none is configured' : `known are ${known}`}`,
    );
  }

  async #byHand(
    workflow: Workflow,
    given: readonly string[],
    dryRun: boolean,
    query: 'byHandReset' | 'byHandRetry',
  ): Promise<HandledCounts> {
    const ids = [...new Set(given)];
    if (ids.length === 0 || ids.length > mostIds)
      throw new AppError('invalid_request', `ids must name 1 to ${mostIds} records, got ${ids.length}`);
    const { observer, log, deadAfterMs, timeoutGraceMs } = this.#options;
    const { looked, changed } = await this.#told(async () => {
      const table = await openTable(this.#sessions, workflow);
      const args = [table.workflowId, ids, deadAfterMs, timeoutGraceMs];
      return this.#change(table, args, dryRun ? undefined : query);
    });
    const isRetry = query === 'byHandRetry';
    const records = looked.map((row) => handled(row, isRetry, changed));
    const counts = countsOf(workflow.name, dryRun, records);
    if (!dryRun && counts.requeued > 0) {
      observer?.recovered?.(workflow.name, 'by_hand', 'requeued', counts.requeued);
      log.warn(
        { workflow: workflow.name, records: counts.requeued, ids: [...(changed ?? [])].slice(0, 10) },
        isRetry ? 'failed records were queued again by hand' : 'records were reset by hand',
      );
      // Only sooner: the loops find them by polling.
      await notify(this.#sessions, workflow.name).catch((error: unknown) =>
        log.debug({ reason: messageOf(error) }, 'nobody was told of the records that came back'),
      );
    }
    return counts;
  }

  /**
   * Looks and acts on one picture of the database: a record that changes in between is a conflict, and
   * the transaction runs again on a new picture.
   */
  async #change(
    { queries }: Table,
    args: unknown[],
    change: 'byHandReset' | 'byHandRetry' | undefined,
  ): Promise<{ looked: LookedAt[]; changed: Set<string> | undefined }> {
    return this.#sessions.transaction(async (client) => {
      const { rows: looked } = await this.#sessions.queryOn<LookedAt>(client, queries.byHandLook, args);
      if (!change) return { looked, changed: undefined };
      const { rows } = await this.#sessions.queryOn<{ record_id: string }>(client, queries[change], args);
      return { looked, changed: new Set(rows.map(({ record_id }) => record_id)) };
    }, 'REPEATABLE READ');
  }

  async #told<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw toldError(error);
    }
  }
}

/** A database that cannot be used is told as such, whatever the reason; a surprise stays one. */
export function toldError(error: unknown): unknown {
  if (error instanceof AppError || error instanceof ConfigError) return error;
  const { code } = error as { code?: unknown };
  const text = typeof code === 'string' ? code : '';
  if (/^22/.test(text))
    return new AppError('invalid_request', `not an id of this table: ${messageOf(error)}`);
  // Refused: wrong password, no such database, no right to it.
  if (!isSessionFault(error) && !/^(28|3D)|^42501$/.test(text)) return error;
  const grant = grantFor(error);
  const reason = messageOf(error).replace(/^(the database cannot be used|no session): /, '');
  const told = `the database cannot be used: ${reason}${grant === undefined ? '' : `: ${grant}`}`;
  return new AppError('database_unavailable', told, {
    retryAfterSeconds: 5,
    cause: error,
  });
}

function handled(row: LookedAt, isRetry: boolean, changed: ReadonlySet<string> | undefined): Handled {
  const { record_id: id, resets, worker, trace, stuck_seconds } = row;
  const stuckSeconds = row.is_processing && stuck_seconds !== null ? Number(stuck_seconds) : null;
  const left = leftAlone(row, isRetry);
  const isDone = changed ? changed.has(id) : left === undefined;
  const rest = { id, resets, stuckSeconds, worker, trace };
  return isDone
    ? { ...rest, outcome: 'requeued', reason: 'by_hand' }
    : { ...rest, outcome: 'skipped', reason: left ?? 'live_claim' };
}

function leftAlone(row: LookedAt, isRetry: boolean): LeftAlone | undefined {
  if (row.status === null) return 'not_found';
  if (isRetry && !row.is_failed) return 'not_failed';
  if (!isRetry && !row.is_processing) return 'not_processing';
  return row.is_live ? 'live_claim' : undefined;
}

function countsOf(workflow: string, dryRun: boolean, records: readonly Handled[]): HandledCounts {
  const of = (outcome: Handled['outcome']) => records.filter((record) => record.outcome === outcome).length;
  return {
    workflow,
    dryRun,
    requeued: of('requeued'),
    failed: of('failed'),
    held: of('held'),
    skipped: of('skipped'),
    total: records.length,
    records: [...records],
  };
}
