/**
 * Every statement of the record plane. Each is one round trip and one transaction: a row is marked and claimed, or
 * finished and its claim deleted, in one step or not at all. All times are the database's.
 */
import type { PoolClient, QueryResult } from 'pg';
import { type ClaimedResult, ClaimedRows } from './claimed-rows.js';
import { claimLimited, type KeyTurn } from './limits.js';
import { LiveTable } from './live-table.js';
import { codeOf, isRowFault, mayBeRowFault, type Sessions } from './sessions.js';
import type {
  Blocks,
  Claim,
  ClaimKey,
  FailedRecord,
  Finished,
  History,
  Outcome,
  RecordState,
  Recovered,
  Stuck,
  StuckFilter,
  Unchanged,
  Waiting,
} from './store-types.js';
import { columns, edges, idsAndTokens } from './store-types.js';
import { type QueryName, type Table, truncate } from './table.js';
import { type Bounds, defaultBounds } from './workflow.js';

export type * from './store-types.js';

/** About 8 MB of a table: a few milliseconds to read. */
const blocksPerRange = 1000;
/** Read within a few tens of milliseconds. */
const smallBytes = 64 * 1024 * 1024;

export class RecordStore {
  readonly #table: LiveTable;
  /** For a workflow with a limit. */
  readonly #turn: KeyTurn = { key: null, isKeyless: false };

  constructor(
    readonly sessions: Sessions,
    table: Table,
    /** An operator asked for the recovery: resets are noted as `by_hand`. */
    readonly isByHand = false,
  ) {
    this.#table = new LiveTable(sessions, table);
  }

  get table(): Table {
    return this.#table.current;
  }

  /** `nowMs`: by our own clock, read before the statement. */
  async claim(
    worker: number,
    limit: number,
    timeoutMs: number,
    nowMs: number,
    only: string[] | null = null,
  ): Promise<Claim[]> {
    const args = [this.table.workflowId, limit, worker, timeoutMs, only] as const;
    const claimed = new ClaimedRows();
    const run = () =>
      this.#table.run((table) =>
        table.limit
          ? claimLimited(this.sessions, table, this.#turn, args, claimed)
          : this.sessions.query<unknown[]>(table.queries.claim, [...args], (client) =>
              claimed.config(client),
            ),
      );
    const result: ClaimedResult = await run().catch((error: unknown) => {
      // Another row for the same record: the claim is retried once.
      if (codeOf(error) !== '23505') throw error;
      return run();
    });
    return claimed.claims(result, nowMs);
  }

  /** `isFinal`: without a retry; `onlyUnlocked`: skips rows that another transaction has locked, without a wait. */
  async finish(
    outcomes: readonly Outcome[],
    { onlyUnlocked = false, isFinal = false } = {},
  ): Promise<Finished> {
    const { maxErrorLength, hasRetry } = this.table;
    const query = hasRetry && !isFinal ? 'finishRetry' : 'finish';
    const errors = outcomes
      .filter(({ error }) => error !== null)
      .map(({ id, error }) => [id, truncate(error ?? '', maxErrorLength)]);
    const [ids, tokens] = idsAndTokens(outcomes);
    const [result] = await this.#run<{ is_whole: boolean } & Record<keyof Finished, string | null>>(
      onlyUnlocked ? `${query}Unlocked` : query,
      [ids, tokens, JSON.stringify(Object.fromEntries(errors))],
    );
    const list = (name: keyof Finished): string[] => JSON.parse(result?.[name] ?? '[]');
    return {
      written: new Set(result?.is_whole ? ids : list('written')),
      ...{ restored: list('restored'), unchanged: list('unchanged'), retried: new Set(list('retried')) },
    };
  }

  /** The rows of outcomes that were not written although their token held. */
  async unchanged(ids: readonly string[]): Promise<Unchanged[]> {
    return (await this.#query<Unchanged>('unchanged', [ids, this.table.path])).rows;
  }

  /** The ids of the claims whose records a trigger has set back to Queued. */
  async restored(claims: readonly ClaimKey[]): Promise<string[]> {
    return this.#ids('restored', columns(claims));
  }

  /** After a lost reply: the ids of the outcomes that are in the table already. */
  async settled(outcomes: readonly Outcome[]): Promise<string[]> {
    const completed = outcomes.map(({ error }) => error === null);
    return this.#ids('settled', [...columns(outcomes), completed]);
  }

  /** The ids that the next claim would take. */
  async queued(limit: number): Promise<string[]> {
    return this.#ids('listQueued', [limit]);
  }

  async postpone(id: string): Promise<void> {
    await this.#run('postpone', [id]);
  }

  async failQueued(id: string, error: string): Promise<void> {
    await this.#query('failQueued', [id, truncate(error, this.table.maxErrorLength)]);
  }

  /** Restarts the timeout of the claims that still hold, and returns them. */
  async renew(claims: readonly ClaimKey[]): Promise<ClaimKey[]> {
    return this.#keys('renew', claims);
  }

  /** Notes that the handler of a record that was reset before starts. Resolves to false if the claim is lost. */
  async begin(claim: ClaimKey): Promise<boolean> {
    return (await this.#keys('begin', [claim])).length > 0;
  }

  async release(claims: readonly ClaimKey[]): Promise<number> {
    return (await this.#ids('release', idsAndTokens(claims))).length;
  }

  /** Releases the claims of lost replies: those of this worker newer than `after` that are not `known`. */
  async releaseUnknown(worker: number, after: string, known: readonly string[]): Promise<number> {
    return (await this.#ids('releaseUnknown', [worker, after, known])).length;
  }

  /**
   * Recovers claims that this worker abandons at once, like those of a dead worker, with budget and policy. While another
   * replica sweeps, or if a row is refused, they are left to its sweep or the next one.
   */
  async giveUp(claims: readonly ClaimKey[]): Promise<Recovered[]> {
    const ids = (await this.#keys('giveUp', claims)).map(({ id }) => id);
    const batch = await this.recoverClaims(ids.length, defaultBounds, { ids }).catch((error: unknown) => {
      if (!mayBeRowFault(error)) throw error;
    });
    return batch?.recovered ?? [];
  }

  /** Returns those of the claims that no longer hold. */
  async lost(claims: readonly ClaimKey[]): Promise<ClaimKey[]> {
    return this.#keys('lostClaims', claims);
  }

  async trace(notes: readonly (ClaimKey & { note: string })[]): Promise<void> {
    await this.#run('trace', [...columns(notes), notes.map(({ note }) => note)]);
  }

  /**
   * Resolves to the transaction id if the claim holds. Then the recovery cannot take it before the transaction ends,
   * which the database enforces after `endsInMs` without a statement. `isLast`: right before the commit.
   */
  async hold(
    client: PoolClient,
    { id, token }: ClaimKey,
    endsInMs: number,
    isLast: boolean,
  ): Promise<string | undefined> {
    const { workflowId, queries } = this.table;
    const args = [workflowId, id, token, String(Math.ceil(endsInMs))];
    const query = isLast ? queries.holdClaimLast : queries.holdClaim;
    return (await this.sessions.queryOn<{ xact: string }>(client, query, args)).rows[0]?.xact;
  }

  /** Whether a transaction was committed; undefined while it is in progress. */
  async isCommitted(xact: string): Promise<boolean | undefined> {
    const { rows } = await this.sessions.query<{ status: string | null }>(
      'SELECT pg_xact_status($1::xid8) AS status',
      [xact],
    );
    const status = rows[0]?.status;
    return status === 'in progress' ? undefined : status === 'committed';
  }

  /**
   * Runs one batch of the fast sweep; undefined while another replica sweeps. `ids`: only these; `hold`: keeps them for a
   * person; `skip`: passes over so many. `lookedAt`: how many claims were considered.
   */
  async recoverClaims(
    limit: number,
    { deadAfterMs, timeoutGraceMs }: Omit<Bounds, 'stuckAfterMs'>,
    options: { judgesHeartbeats?: boolean; ids?: readonly string[]; hold?: boolean; skip?: number } = {},
  ): Promise<{ recovered: Recovered[]; lookedAt: number } | undefined> {
    const { judgesHeartbeats = true, ids = null, hold = false, skip = 0 } = options;
    const deadMs = judgesHeartbeats ? deadAfterMs : null;
    const args = [limit, deadMs, timeoutGraceMs, ids, skip, this.#reason];
    const rows = await this.#table.runAlone<Recovered & { looked_at: number }>(
      hold ? 'holdClaims' : 'recoverClaims',
      args,
    );
    if (!rows) return undefined;
    const recovered = rows.map(({ looked_at, ...row }) => row).filter(({ id }) => id !== null);
    return { recovered, lookedAt: rows[0]?.looked_at ?? 0 };
  }

  /** Runs one batch of the slow sweep: those of `ids` without a claim. */
  async recoverUnclaimed(
    ids: readonly string[],
    stuckAfterMs: number,
    hold = false,
  ): Promise<Recovered[] | undefined> {
    const args = [Math.round(stuckAfterMs), ids, this.#reason];
    return this.#table.runAlone<Recovered>(hold ? 'holdUnclaimed' : 'recoverUnclaimed', args);
  }

  /** The ids that the slow sweep recovers, in the whole table or some of its blocks, without the first `skip`. */
  async listUnclaimed(limit: number, stuckAfterMs: number, skip: number, blocks?: Blocks): Promise<string[]> {
    const args = [limit, Math.round(stuckAfterMs), skip];
    return blocks
      ? this.#ids('listUnclaimedBlocks', [...args, ...edges(blocks)])
      : this.#ids('listUnclaimed', args);
  }

  /** Whether rows in Processing are found quickly: by an index, or because the table is small. */
  async isQuicklyRead(): Promise<boolean> {
    const { path, isIndexed, hasBlocks } = this.table;
    if (isIndexed || !hasBlocks) return isIndexed;
    const { rows } = await this.sessions.query<{ bytes: string }>(
      'SELECT pg_relation_size(to_regclass($1)) AS bytes',
      [path],
    );
    return Number(rows[0]?.bytes) <= smallBytes;
  }

  async markUntimed(limit: number, blocks?: Blocks): Promise<number> {
    return blocks
      ? this.#change('markUntimedBlocks', [limit, ...edges(blocks)])
      : this.#change('markUntimed', [limit]);
  }

  /**
   * Deletes claims whose records other programs have changed or deleted. Ids that this table cannot have (its ids had
   * another type once) are found by reading all of it.
   */
  async forget(
    limit: number,
    { deadAfterMs, timeoutGraceMs }: Bounds,
    judgesHeartbeats = true,
  ): Promise<number> {
    const args = [limit, judgesHeartbeats ? deadAfterMs : null, timeoutGraceMs];
    return this.#change('forget', args).catch((error: unknown) => {
      if (!isRowFault(error)) throw error;
      return this.#change('forgetByText', args);
    });
  }

  async stuck(
    limit: number,
    { deadAfterMs, timeoutGraceMs, stuckAfterMs }: Bounds,
    { unclaimed = null, judgesHeartbeats = true }: StuckFilter = {},
  ): Promise<Stuck> {
    const rows = await this.#run<Stuck['records'][number] & Record<string, unknown>>('listStuck', [
      limit,
      judgesHeartbeats ? deadAfterMs : null,
      timeoutGraceMs,
      Math.round(stuckAfterMs),
      unclaimed,
    ]);
    const number = (name: string) => Number(rows[0]?.[name] ?? 0);
    return {
      wouldBe: { requeued: number('requeued'), failed: number('failed'), held: number('held') },
      total: number('total'),
      oldestSeconds: number('oldest_seconds'),
      records: rows.map(({ total, oldest_seconds, requeued, failed, held, ...record }) => record),
    };
  }

  /** The same numbers for a table that may take longer to read than our query timeout. */
  async stuckByBlocks(
    bounds: Bounds,
    { unclaimed = null, judgesHeartbeats = true }: StuckFilter = {},
  ): Promise<Pick<Stuck, 'total' | 'oldestSeconds'>> {
    const claims = unclaimed
      ? undefined
      : await this.stuck(1, bounds, { unclaimed: false, judgesHeartbeats });
    let total = claims?.total ?? 0;
    let oldestSeconds = claims?.oldestSeconds ?? 0;
    if (unclaimed === false) return { total, oldestSeconds };
    for (const blocks of await this.ranges()) {
      const args = [Math.round(bounds.stuckAfterMs), ...edges(blocks)];
      const [row] = await this.#run<Record<string, unknown>>('countUnclaimed', args);
      total += Number(row?.total ?? 0);
      oldestSeconds = Math.max(oldestSeconds, Number(row?.oldest_seconds ?? 0));
    }
    return { total, oldestSeconds };
  }

  /** The table as ranges of blocks. */
  async ranges(): Promise<Blocks[]> {
    const { rows } = await this.sessions.query<{ blocks: string }>(
      "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::bigint AS blocks",
      [this.table.path],
    );
    const count = Math.ceil((Number(rows[0]?.blocks ?? 0) + 1) / blocksPerRange);
    return Array.from({ length: count }, (_, i) => ({
      from: i * blocksPerRange,
      to: (i + 1) * blocksPerRange,
    }));
  }

  /** What keeps queued records from being claimed. */
  async waiting(): Promise<Waiting> {
    const [row] = await this.#run<Waiting>('countWaiting', []);
    return row ?? { waitingForRetry: null, nextRetrySeconds: null, keysAtLimit: null };
  }

  /** Counts queued, processing and failed records, up to a million each; not completed ones: there may be billions. */
  async counts(): Promise<Map<string, { records: number; oldestSeconds: number }>> {
    const { rows } = await this.#query<Record<string, unknown>>('count', []);
    return new Map(
      rows.map(({ status, records, oldest_seconds }) => [
        String(status),
        { records: Number(records), oldestSeconds: Math.max(0, Number(oldest_seconds ?? 0)) },
      ]),
    );
  }

  /** Failed records, the newest first; then those that wait for their retry. */
  async failed(limit: number): Promise<FailedRecord[]> {
    return this.#run<FailedRecord>('listFailed', [limit]);
  }

  /** Records that had failed `sinceMs` ago, the oldest first, without those in `except`. */
  async failedIds(limit: number, sinceMs: number, except: readonly string[]): Promise<string[]> {
    return this.#ids('listFailedIds', [limit, sinceMs, except]);
  }

  async history(deadAfterMs: number): Promise<History> {
    const [row] = await this.#run<History>('history', [deadAfterMs]);
    return row ?? { timedOut: 0, deadWorker: 0, unclaimed: 0, longestSeconds: null };
  }

  /** Requeues records that no live worker holds, on one snapshot; tries again after a conflict. Without `change` a dry run. */
  async requeueByHand(
    ids: readonly string[],
    { deadAfterMs, timeoutGraceMs }: Omit<Bounds, 'stuckAfterMs'>,
    change: 'requeueByHand' | 'retryByHand' | undefined,
  ): Promise<{ found: RecordState[]; changed: Set<string> | undefined }> {
    const { workflowId, queries } = this.table;
    const argsOf = (named: readonly string[]) => [workflowId, named, deadAfterMs, timeoutGraceMs];
    return this.sessions.transaction(async (client) => {
      const { rows: found } = await this.sessions.queryOn<RecordState>(client, queries.lookById, argsOf(ids));
      if (!change) return { found, changed: undefined };
      const args = argsOf(found.map(({ id }) => id));
      const { rows } = await this.sessions.queryOn<{ record_id: string }>(client, queries[change], args);
      return { found, changed: new Set(rows.map(({ record_id }) => record_id)) };
    }, 'REPEATABLE READ');
  }

  get #reason(): string | null {
    return this.isByHand ? 'by_hand' : null;
  }

  /** $1 is the workflow, followed by `args`. */
  async #run<R extends object>(name: QueryName, args: unknown[]): Promise<R[]> {
    return (await this.#query<R>(name, [this.table.workflowId, ...args])).rows;
  }

  /** The same; resolves to the number of changed rows. */
  async #change(name: QueryName, args: unknown[]): Promise<number> {
    return (await this.#query(name, [this.table.workflowId, ...args])).rowCount ?? 0;
  }

  #query<R extends object>(name: QueryName, args: unknown[]): Promise<QueryResult<R>> {
    return this.#table.run(({ queries }) => this.sessions.query<R>(queries[name], args));
  }

  async #ids(name: QueryName, args: unknown[]): Promise<string[]> {
    return (await this.#run<{ record_id: string }>(name, args)).map(({ record_id }) => record_id);
  }

  async #keys(name: QueryName, claims: readonly ClaimKey[]): Promise<ClaimKey[]> {
    const rows = await this.#run<{ record_id: string; token: string }>(name, columns(claims));
    return rows.map(({ record_id, token }) => ({ id: record_id, token: String(token) }));
  }
}
