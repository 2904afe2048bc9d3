/**
 * Every statement of the record plane. Each is one round trip and one transaction: marking a row and claiming it, or
 * finishing it and giving up the claim, happen together or not at all. Times are the database's.
 */
import type { PoolClient } from 'pg';
import { defaultBounds } from './bounds.js';
import { isRowFault, type Sessions } from './sessions.js';
import type {
  Blocks,
  Bounds,
  Claim,
  ClaimKey,
  Finished,
  Only,
  Outcome,
  Recovered,
  Stuck,
  Unchanged,
  Which,
} from './store-types.js';
import { cut, type QueryName, type Table } from './table.js';
import type { Row } from './workflow.js';

export type * from './store-types.js';

interface RecoveredRow {
  record_id: string;
  reason: Recovered['reason'];
  outcome: Recovered['outcome'];
  resets: number;
  stuck_seconds: number | null;
  worker: string | null;
  trace: string | null;
  looked_at?: string;
}

/** Our own columns in a claimed row; no table of a team has such names. */
const own = ['smart_router.token', 'smart_router.id', 'smart_router.is_back', 'smart_router.is_suspect'];

/** About 8 MB of a table at a time: a few milliseconds to read. */
const blocksAtOnce = 1000;
/** Read within a few tens of milliseconds. */
const smallBytes = 64 * 1024 * 1024;

export class RecordStore {
  constructor(
    readonly sessions: Sessions,
    readonly table: Table,
    /** A person asked for what this store recovers: it is noted as that. */
    readonly isByHand = false,
  ) {}

  /** `nowMs`: by our own clock, before it is asked for. */
  async claim(
    worker: number,
    most: number,
    timeoutMs: number,
    nowMs: number,
    only: string[] | null = null,
  ): Promise<Claim[]> {
    const rows = await retriedOnce(() =>
      this.#run('claim', [this.table.workflowId, most, worker, timeoutMs, only]),
    );
    return rows.map((row) => {
      const claim = {
        id: String(row['smart_router.id']),
        token: String(row['smart_router.token']),
        record: row,
        confirmedMs: nowMs,
        isBack: row['smart_router.is_back'] === true,
        isSuspect: row['smart_router.is_suspect'] === true,
      };
      for (const name of own) delete row[name];
      return claim;
    });
  }

  async finish(outcomes: readonly Outcome[]): Promise<Finished> {
    return this.#finish('finish', outcomes);
  }

  /** The same without a wait; those that somebody keeps locked are not written either. */
  async finishFree(outcomes: readonly Outcome[]): Promise<Finished> {
    return this.#finish('finishFree', outcomes);
  }

  async #finish(name: 'finish' | 'finishFree', outcomes: readonly Outcome[]): Promise<Finished> {
    const { workflowId, longestError } = this.table;
    const errors = outcomes.flatMap(({ id, error }) =>
      error === null ? [] : [[id, cut(error, longestError)]],
    );
    const rows = await this.#run(name, [
      workflowId,
      ...idsAndTokens(outcomes),
      JSON.stringify(Object.fromEntries(errors)),
    ]);
    const those = (isKept: boolean | null) =>
      rows.filter(({ is_kept }) => is_kept === isKept).map(({ record_id }) => String(record_id));
    return { written: new Set(those(false)), setBack: those(true), unchanged: those(null) };
  }

  /** Why a finish changed nothing, as far as it can be seen. */
  async unchanged(ids: readonly string[]): Promise<Unchanged[]> {
    const rows = await this.#run('unchanged', [ids, this.table.path]);
    return rows.map(({ record_id, status, is_processing, is_queued, is_secured }) => ({
      id: String(record_id),
      status: status === null ? null : String(status),
      isProcessing: is_processing === true,
      isQueued: is_queued === true,
      isSecured: is_secured === true,
    }));
  }

  /** Which of these claims a trigger has set back to Queued. */
  async restored(claims: readonly ClaimKey[]): Promise<string[]> {
    const rows = await this.#run('restored', [this.table.workflowId, ...columns(claims)]);
    return rows.map(({ record_id }) => String(record_id));
  }

  /** After an answer that was lost: what is in the table already. */
  async settled(outcomes: readonly Outcome[]): Promise<string[]> {
    const rows = await this.#run('settled', [
      this.table.workflowId,
      ...columns(outcomes),
      outcomes.map(({ error }) => error === null),
    ]);
    return rows.map(({ record_id }) => String(record_id));
  }

  /** The ids that the next claim would take. */
  async queued(most: number): Promise<string[]> {
    const rows = await this.#run('listQueued', [this.table.workflowId, most]);
    return rows.map(({ record_id }) => String(record_id));
  }

  async postpone(id: string): Promise<void> {
    await this.#run('postpone', [this.table.workflowId, id]);
  }

  /** Resolves to those that still hold; their time begins anew. */
  async renew(claims: readonly ClaimKey[]): Promise<ClaimKey[]> {
    const rows = await this.#run('renew', [this.table.workflowId, ...columns(claims)]);
    return rows.map(({ record_id, token }) => ({ id: String(record_id), token: String(token) }));
  }

  /** Before the handler of a record that came back. Resolves to false if the claim no longer holds. */
  async begin({ id, token }: ClaimKey): Promise<boolean> {
    return (await this.#run('begin', [this.table.workflowId, id, token])).length > 0;
  }

  async giveBack(claims: readonly ClaimKey[]): Promise<number> {
    return (await this.#run('giveBack', [this.table.workflowId, ...idsAndTokens(claims)])).length;
  }

  /** What this worker was given by a claim whose answer never came: everything newer than `after` that is not `known`. */
  async giveBackUnknown(worker: number, after: string, known: readonly string[]): Promise<number> {
    return (await this.#run('giveBackUnknown', [this.table.workflowId, worker, after, known])).length;
  }

  /**
   * Claims that this worker gives up, brought back at once as those of a dead one are: budget and policy count. While
   * another replica sweeps they are left to it, or to the next sweep.
   */
  async giveUp(claims: readonly ClaimKey[]): Promise<Recovered[]> {
    const rows = await this.#run('giveUp', [this.table.workflowId, ...columns(claims)]);
    const ids = rows.map(({ record_id }) => String(record_id));
    const { deadAfterMs, timeoutGraceMs } = defaultBounds;
    const done = await this.recoverClaims(ids.length, deadAfterMs, timeoutGraceMs, { ids });
    return done?.recovered ?? [];
  }

  async lost(claims: readonly ClaimKey[]): Promise<ClaimKey[]> {
    const rows = await this.#run('lostClaims', [this.table.workflowId, ...columns(claims)]);
    return rows.map(({ record_id, token }) => ({ id: String(record_id), token: String(token) }));
  }

  async trace(notes: readonly { id: string; token: string; note: string }[]): Promise<void> {
    await this.#run('trace', [this.table.workflowId, ...columns(notes), notes.map(({ note }) => note)]);
  }

  /**
   * Resolves to the number of the transaction while the claim holds; then no recovery takes it before this transaction
   * ends, which the database sees to after `endsInMs` without a statement. `last`: right before the commit.
   */
  async hold(
    client: PoolClient,
    claim: ClaimKey,
    endsInMs: number,
    last: boolean,
  ): Promise<string | undefined> {
    const { workflowId, queries } = this.table;
    const args = [workflowId, claim.id, claim.token, String(Math.ceil(endsInMs))];
    const query = last ? queries.holdClaimLast : queries.holdClaim;
    return (await this.sessions.queryOn<{ xact: string }>(client, query, args)).rows[0]?.xact;
  }

  /** Whether a transaction was committed; undefined while that is open. */
  async isCommitted(xact: string): Promise<boolean | undefined> {
    const { rows } = await this.sessions.query<{ status: string | null }>(
      'SELECT pg_xact_status($1::xid8) AS status',
      [xact],
    );
    const status = rows[0]?.status;
    return status === 'in progress' ? undefined : status === 'committed';
  }

  /**
   * One batch of the fast sweep, or undefined while another replica is at it; `only` these, which may be `held`.
   * `lookedAt`: of how many it was taken; those before `skip` were passed over.
   */
  async recoverClaims(
    most: number,
    deadMs: number | null,
    graceMs: number,
    only: Only = {},
    skip = 0,
  ): Promise<{ recovered: Recovered[]; lookedAt: number } | undefined> {
    const name = only.hold ? 'holdClaims' : 'recoverClaims';
    const args = [this.table.workflowId, most, deadMs, graceMs, only.ids ?? null, skip, this.#reason];
    const rows = await this.#alone(name, args);
    if (!rows) return undefined;
    const done = rows.filter((row) => row.record_id !== null);
    return { recovered: done.map(parseRecovered), lookedAt: Number(rows[0]?.looked_at ?? 0) };
  }

  /** One batch of the slow sweep: those of `ids` that nobody of ours holds. */
  async recoverUnclaimed(
    ids: readonly string[],
    afterMs: number,
    hold = false,
  ): Promise<Recovered[] | undefined> {
    const args = [this.table.workflowId, Math.round(afterMs), ids, this.#reason];
    return (await this.#alone(hold ? 'holdUnclaimed' : 'recoverUnclaimed', args))?.map(parseRecovered);
  }

  /** What the slow sweep is for, in the whole table or some of its blocks, without the first `skip`. */
  async listUnclaimed(most: number, afterMs: number, skip: number, blocks?: Blocks): Promise<string[]> {
    const args = [this.table.workflowId, most, Math.round(afterMs), skip];
    const rows = blocks
      ? await this.#run('listUnclaimedBlocks', [...args, ...edges(blocks)])
      : await this.#run('listUnclaimed', args);
    return rows.map(({ record_id }) => String(record_id));
  }

  /** Whether rows in Processing are found without reading much: by an index, or because the table is small. */
  async isQuicklyRead(): Promise<boolean> {
    const { path, isIndexed, hasBlocks } = this.table;
    if (isIndexed || !hasBlocks) return isIndexed;
    const { rows } = await this.sessions.query<{ bytes: string }>(
      'SELECT pg_relation_size(to_regclass($1)) AS bytes',
      [path],
    );
    return Number(rows[0]?.bytes) <= smallBytes;
  }

  async sightUntimed(most: number, blocks?: Blocks): Promise<number> {
    const { workflowId, queries } = this.table;
    const query = blocks ? queries.sightUntimedBlocks : queries.sightUntimed;
    const args = [workflowId, most, ...(blocks ? edges(blocks) : [])];
    return (await this.sessions.query(query, args)).rowCount ?? 0;
  }

  /**
   * What other hands have left behind in our own schema. Ids that this table cannot have (it had others once, or another
   * table had its name) are found by reading all of it.
   */
  async forget(most: number, deadMs: number | null, graceMs: number): Promise<number> {
    const { workflowId, queries } = this.table;
    const args = [workflowId, most, deadMs, graceMs];
    try {
      return (await this.sessions.query(queries.forget, args)).rowCount ?? 0;
    } catch (error) {
      if (!isRowFault(error)) throw error;
      return (await this.sessions.query(queries.forgetByText, args)).rowCount ?? 0;
    }
  }

  async stuck(
    most: number,
    { deadMs, graceMs, afterMs }: Bounds,
    { unclaimed = null, judges = true }: Which = {},
  ): Promise<Stuck> {
    const rows = await this.#run('listStuck', [
      this.table.workflowId,
      most,
      judges ? deadMs : null,
      graceMs,
      Math.round(afterMs),
      unclaimed,
    ]);
    const number = (name: string) => Number(rows[0]?.[name] ?? 0);
    return {
      records: rows.map((row) => ({ ...parseRecovered(row as RecoveredRow), isHeld: Boolean(row.is_held) })),
      total: number('total'),
      wouldBe: { requeued: number('requeued'), failed: number('failed'), held: number('held') },
      oldestSeconds: number('oldest_seconds'),
    };
  }

  /** The same numbers of a table that may take longer to be read at once than we wait. */
  async stuckByPieces(
    bounds: Bounds,
    { unclaimed = null, judges = true }: Which = {},
  ): Promise<Pick<Stuck, 'total' | 'oldestSeconds'>> {
    const claims = unclaimed ? undefined : await this.stuck(1, bounds, { unclaimed: false, judges });
    let total = claims?.total ?? 0;
    let oldestSeconds = claims?.oldestSeconds ?? 0;
    if (unclaimed === false) return { total, oldestSeconds };
    for (const blocks of await this.pieces()) {
      const args = [this.table.workflowId, Math.round(bounds.afterMs), ...edges(blocks)];
      const [row] = await this.#run('countUnclaimed', args);
      total += Number(row?.total ?? 0);
      oldestSeconds = Math.max(oldestSeconds, Number(row?.oldest_seconds ?? 0));
    }
    return { total, oldestSeconds };
  }

  /** The table's blocks, piece by piece. */
  async pieces(): Promise<Blocks[]> {
    const { rows } = await this.sessions.query<{ blocks: string }>(
      "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::bigint AS blocks",
      [this.table.path],
    );
    const count = Math.ceil((Number(rows[0]?.blocks ?? 0) + 1) / blocksAtOnce);
    return Array.from({ length: count }, (_, i) => ({ from: i * blocksAtOnce, to: (i + 1) * blocksAtOnce }));
  }

  /** Records that wait, are worked on or have failed; completed ones are not counted: there may be billions. Up to a million each. */
  async counts(): Promise<Map<string, { records: number; oldestSeconds: number }>> {
    const rows = await this.#run('count', []);
    return new Map(
      rows.map(({ status, records, oldest_seconds }) => [
        String(status),
        { records: Number(records), oldestSeconds: Math.max(0, Number(oldest_seconds ?? 0)) },
      ]),
    );
  }

  get #reason(): string | null {
    return this.isByHand ? 'by_hand' : null;
  }

  async #run(name: QueryName, args: unknown[]): Promise<Row[]> {
    return (await this.sessions.query<Row>(this.table.queries[name], args)).rows;
  }

  /**
   * One replica at a time, for one batch: a lock of the transaction, so that it works through a pooler. Each sweep has
   * its own: the slow one must not pass because the fast one happened to be at it.
   */
  async #alone(name: QueryName, args: unknown[]): Promise<RecoveredRow[] | undefined> {
    return this.sessions.transaction(async (client) => {
      const { rows: locks } = await this.sessions.queryOn<{ mine: boolean }>(
        client,
        // Nobody waits longer for the statement that follows: then it must not hold the lock any longer either.
        `SELECT pg_try_advisory_xact_lock(hashtext($2), $1) AS mine, set_config('statement_timeout', $3, true)`,
        [
          this.table.workflowId,
          `smart_router.${name.endsWith('Claims') ? 'fast' : 'slow'}_sweep`,
          String(this.sessions.queryTimeoutMs),
        ],
      );
      if (!locks[0]?.mine) return undefined;
      return (await this.sessions.queryOn<RecoveredRow>(client, this.table.queries[name], args)).rows;
      // Rows are judged as they are when they are locked.
    }, 'READ COMMITTED');
  }
}

const edges = ({ from, to }: Blocks): string[] => [`(${from},0)`, `(${to},0)`];

function columns(claims: readonly ClaimKey[]): [string[], string[]] {
  return [claims.map(({ id }) => id), claims.map(({ token }) => token)];
}

/** Ids, and the token of each as JSON. No id may be there twice. */
function idsAndTokens(claims: readonly ClaimKey[]): [string[], string] {
  const tokens = Object.fromEntries(claims.map(({ id, token }) => [id, token]));
  return [claims.map(({ id }) => id), JSON.stringify(tokens)];
}

/** A claim that met another row for the same record (23505) is asked for once more. */
async function retriedOnce<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if ((error as { code?: unknown }).code !== '23505') throw error;
    return ask();
  }
}

function parseRecovered(row: RecoveredRow): Recovered {
  const { record_id, reason, outcome, resets, stuck_seconds, worker, trace } = row;
  return { id: record_id, reason, outcome, resets, stuckSeconds: Number(stuck_seconds ?? 0), worker, trace };
}
