/**
 * Operations of people on records, for the API and the command line: look, reset, retry.
 *
 * Guarantees: a record that a live worker holds within its timeout and grace is never touched; records left unchanged
 * are returned with the reason; a dry run changes nothing and counts everything that would be done. Without ids, `reset`
 * is one round of the recovery, with its policies and budgets, but takes nothing from a live worker, also past its
 * timeout. With ids the person decides: age, budget, the policy `hold` and a worker past its timeout do not protect a
 * record, and its count of resets starts at 0. Both are noted as `by_hand`.
 *
 * Fails with an AppError that names the cause: the workflow, an id, or a database that cannot be used.
 */
import type { Pool } from 'pg';
import { type Clock, systemClock } from '../clock.js';
import { AppError, messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import { maxIds, type RecordNumbers, showNumbers } from './admin.js';
import { type Inspection, inspect, openStore } from './inspect.js';
import { notify } from './listener.js';
import type { RecordObserver } from './observer.js';
import { toAppError } from './permissions.js';
import { queries } from './queries.generated.js';
import { createRecovery, type Recovery } from './recovery.js';
import type { Reset, ResetCount } from './report.js';
import { Sessions } from './sessions.js';
import type { FailedRecord, History, RecordState, RecordStore, Recovered } from './store.js';
import { adviseTimes } from './timeout-advice.js';
import { type AnyWorkflow, type Bounds, defaultBounds, stuckAfterOf, type Workflow } from './workflow.js';

export interface RecordOperationsOptions extends Partial<Bounds> {
  pool: Pool;
  workflows: readonly AnyWorkflow[];
  log: Logger;
  observer?: RecordObserver;
  clock?: Clock;
  /** Seconds within which 99 of 100 records are processed, where this process has seen enough of them. */
  p99?: (workflow: string) => number | null;
}

/** Why a named record was left unchanged. */
export type SkipReason = 'live_claim' | 'not_found' | 'not_processing' | 'not_failed';

export interface HandledRecord extends Omit<Recovered, 'outcome' | 'reason' | 'stuckSeconds'> {
  outcome: Recovered['outcome'] | 'skipped';
  reason: Recovered['reason'] | SkipReason;
  stuckSeconds: number | null;
}

export interface HandledCounts {
  workflow: string;
  /** True: nothing was changed; the counts say what would be. */
  dryRun: boolean;
  requeued: number;
  failed: number;
  /** Held for a person afterwards, including those held before. */
  held: number;
  skipped: number;
  /** The sum of the above. */
  total: number;
  /** At most 1,000. */
  records: HandledRecord[];
}

const maxShown = 1000;
/** A hundred years after its timeout: then only a dead heartbeat counts. */
const neverMs = 100 * 365 * 86_400_000;

export class RecordOperations {
  readonly #options: RecordOperationsOptions & { clock: Clock };
  readonly #bounds: Bounds;
  readonly #sessions: Sessions;
  #recovery: Recovery | undefined;

  constructor(options: RecordOperationsOptions) {
    this.#options = { clock: systemClock, ...options };
    const { deadAfterMs, timeoutGraceMs, stuckAfterMs } = { ...defaultBounds, ...options };
    this.#bounds = { deadAfterMs, timeoutGraceMs, stuckAfterMs };
    this.#sessions = new Sessions({ pool: options.pool, clock: this.#options.clock });
  }

  /** Every workflow's numbers; fails if one of them cannot be read. */
  async list(): Promise<Inspection[]> {
    const found: Inspection[] = [];
    for (const { name } of this.#options.workflows) found.push(await this.inspect(name, 1));
    return found;
  }

  /** Every workflow's numbers as documents, with advice. */
  async numbers(): Promise<RecordNumbers[]> {
    const found = await this.list();
    return Promise.all(
      found.map(async (inspection) => {
        const name = inspection.workflow;
        const p99 = this.#options.p99?.(name) ?? null;
        const history = await this.history(name);
        const advice = adviseTimes(this.workflow(name), history, this.#bounds.stuckAfterMs, p99);
        return showNumbers(inspection, p99, advice);
      }),
    );
  }

  /** One workflow's numbers, with its oldest stuck records. */
  async inspect(name: string, max = maxShown): Promise<Inspection> {
    const workflow = this.workflow(name);
    return this.#run(() => inspect(this.#options.pool, workflow, { ...this.#bounds, most: max }));
  }

  /** Failed records, the newest first. */
  async failed(name: string, limit: number): Promise<FailedRecord[]> {
    return this.#onStore(name, (store) => store.failed(limit));
  }

  async history(name: string): Promise<History> {
    return this.#onStore(name, (store) => store.history(this.#bounds.deadAfterMs));
  }

  /** Resets of the last `lastMs`: the newest of all workflows, and the counts of all. */
  async recent(lastMs: number, limit: number): Promise<{ counts: ResetCount[]; resets: Reset[] }> {
    const names = this.#options.workflows.map(({ name }) => name);
    return this.#run(async () => {
      const counts = await this.#sessions.query<ResetCount>(queries.recentResetCounts, [lastMs, names]);
      const resets = await this.#sessions.query<Reset>(queries.recentResets, [lastMs, names, limit]);
      return { counts: counts.rows, resets: resets.rows };
    });
  }

  /** Requeues the named records, or without ids everything that is stuck. */
  async reset(
    name: string,
    { ids, dryRun }: { ids?: readonly string[] | undefined; dryRun: boolean },
  ): Promise<HandledCounts> {
    if (ids) return this.#requeue(name, ids, dryRun, 'requeueByHand');
    return this.#onStore(name, async (store, workflow) => {
      const done = dryRun ? undefined : await this.#recover().runOnce({ workflow: name });
      const { would, held, kept, late } = await this.#stuck(store, workflow);
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
        records: [...(done?.records ?? []), ...waiting, ...kept].slice(0, maxShown),
      };
    });
  }

  /** `would`: taken by a reset without ids; `held`: already held; `late`: past their timeout with a live worker, left. */
  async #stuck(store: RecordStore, workflow: Workflow) {
    const stuckAfterMs = stuckAfterOf(workflow, this.#bounds.stuckAfterMs);
    const all = await store.stuck(maxShown, { ...this.#bounds, stuckAfterMs });
    const would = await store.stuck(maxShown, { ...this.#bounds, stuckAfterMs, timeoutGraceMs: neverMs });
    const { requeued, failed, held } = would.wouldBe;
    const taken = new Set(would.records.map(({ id }) => id));
    const kept = all.records
      .filter(({ id, isHeld }) => !isHeld && !taken.has(id))
      .map((record): HandledRecord => ({ ...record, outcome: 'skipped', reason: 'live_claim' }));
    const late = Math.max(0, all.total - would.total);
    return { would, held: would.total - requeued - failed - held, kept, late };
  }

  #recover(): Recovery {
    this.#recovery ??= createRecovery({
      ...this.#options,
      stuckAfter: this.#bounds.stuckAfterMs,
      deadAfter: this.#bounds.deadAfterMs,
      timeoutGrace: neverMs,
      byHand: true,
    });
    return this.#recovery;
  }

  /** Requeues failed records; those that wait for their retry run at once. */
  async retry(
    name: string,
    { ids, dryRun }: { ids: readonly string[]; dryRun: boolean },
  ): Promise<HandledCounts> {
    return this.#requeue(name, ids, dryRun, 'retryByHand');
  }

  /**
   * Requeues all records that have failed by now, also those that wait for their retry, in batches, so that no
   * transaction is long. If it is interrupted, the next call does the rest. A record that fails again during the run
   * stays Failed, so the run ends.
   */
  async retryAll(name: string, { dryRun }: { dryRun: boolean }): Promise<HandledCounts> {
    const { clock } = this.#options;
    const startMs = clock.monotonic();
    const sum = countsOf(name, dryRun, []);
    const skipped: string[] = [];
    for (;;) {
      const sinceMs = clock.monotonic() - startMs;
      const ids = await this.#onStore(name, (store) => store.failedIds(maxIds, sinceMs, skipped));
      if (ids.length === 0) return sum;
      const counts = await this.retry(name, { ids, dryRun });
      for (const field of ['requeued', 'skipped', 'total'] as const) sum[field] += counts[field];
      sum.records.push(...counts.records.slice(0, maxIds - sum.records.length));
      if (dryRun) {
        // Nothing has changed, so the rest is counted without a look at each.
        const { failed, waitingForRetry } = await this.inspect(name, 1);
        const rest = Math.max(0, failed + (waitingForRetry ?? 0) - sum.total);
        return { ...sum, requeued: sum.requeued + rest, total: sum.total + rest };
      }
      skipped.push(...counts.records.flatMap(({ id, outcome }) => (outcome === 'skipped' ? [id] : [])));
    }
  }

  workflow(name: string): Workflow {
    const found = this.#options.workflows.find((workflow) => workflow.name === name);
    if (found) return found;
    const known = this.#options.workflows.map((workflow) => workflow.name).join(', ');
    throw new AppError(
      'workflow_not_found',
      `there is no workflow ${JSON.stringify(name)}: ${known === '' ? 'none is configured' : `the workflows are ${known}`}`,
    );
  }

  async #requeue(
    name: string,
    given: readonly string[],
    dryRun: boolean,
    query: 'requeueByHand' | 'retryByHand',
  ): Promise<HandledCounts> {
    this.workflow(name);
    const ids = [...new Set(given)];
    if (ids.length === 0 || ids.length > maxIds)
      throw new AppError('invalid_request', `ids must name 1 to ${maxIds} records, got ${ids.length}`);
    const { observer, log } = this.#options;
    const { found, changed } = await this.#onStore(name, (store) =>
      store.requeueByHand(ids, this.#bounds, dryRun ? undefined : query),
    );
    const isRetry = query === 'retryByHand';
    const counts = countsOf(
      name,
      dryRun,
      found.map((state) => handledRecord(state, isRetry, changed)),
    );
    if (!dryRun && counts.requeued > 0) {
      observer?.recovered?.(name, 'by_hand', 'requeued', counts.requeued);
      log.warn(
        { workflow: name, records: counts.requeued, ids: [...(changed ?? [])].slice(0, 10) },
        isRetry ? 'failed records requeued by hand' : 'records reset by hand',
      );
      // Best effort: the loops also poll.
      await notify(this.#sessions, name).catch((error: unknown) =>
        log.debug({ reason: messageOf(error) }, 'NOTIFY failed after requeue'),
      );
    }
    return counts;
  }

  #onStore<T>(name: string, work: (store: RecordStore, workflow: Workflow) => Promise<T>): Promise<T> {
    const workflow = this.workflow(name);
    return this.#run(async () => work(await openStore(this.#sessions, workflow), workflow));
  }

  async #run<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw toAppError(error);
    }
  }
}

function handledRecord(
  state: RecordState,
  isRetry: boolean,
  changed: ReadonlySet<string> | undefined,
): HandledRecord {
  const { id, resets, stuckSeconds, worker, trace } = state;
  const skip = skipReason(state, isRetry);
  const isDone = changed ? changed.has(id) : skip === undefined;
  const rest = { id, resets, stuckSeconds, worker, trace };
  return isDone
    ? { ...rest, outcome: 'requeued', reason: 'by_hand' }
    : { ...rest, outcome: 'skipped', reason: skip ?? 'live_claim' };
}

function skipReason(state: RecordState, isRetry: boolean): SkipReason | undefined {
  if (!state.exists) return 'not_found';
  if (isRetry && !state.isFailed) return 'not_failed';
  if (!isRetry && !state.isProcessing) return 'not_processing';
  return state.isLive ? 'live_claim' : undefined;
}

function countsOf(workflow: string, dryRun: boolean, records: HandledRecord[]): HandledCounts {
  const of = (outcome: HandledRecord['outcome']) =>
    records.filter((record) => record.outcome === outcome).length;
  return {
    workflow,
    dryRun,
    requeued: of('requeued'),
    failed: of('failed'),
    held: of('held'),
    skipped: of('skipped'),
    total: records.length,
    records,
  };
}
