/**
 * Limits per key: at most `max` records with the same value of a column of the team's table are claimed at once.
 *
 * Guarantee: exact over all workers whose workflow states the limit. A claim is one transaction at READ COMMITTED. It
 * first locks the keys that it may use (advisory locks, never waiting) and rows of them, then counts and claims in one
 * statement. That statement's snapshot is younger than the locks, and locks are released after the commit is visible, so it
 * sees every claim of these keys. A count before the lock would not: two claims could both see the last free place. The
 * first statement counts too, but only to pass over full keys: a claim may be committed between its snapshot and its locks.
 *
 * Nothing is counted in advance: places are the claims that have a token, so a finish, a release or a reset frees one.
 * Keys take turns: each claim starts after the last key of the previous one. A claim is stored with a hash of the key's
 * text; two keys with the same hash would share one limit.
 *
 * Weakness: a claim reads every row of a key that waits for a retry: 50,000 take 0.4 s. It scans all queued rows without the
 * advised index, or if equal keys may differ as text (a numeric without a scale, citext, a collation that ignores case).
 */
import type { ClaimedResult, ClaimedRows } from './claimed-rows.js';
import { type Column, coversStatus } from './columns.js';
import { quoteName } from './identifiers.js';
import { queries } from './queries.generated.js';
import type { Queryable, Sessions } from './sessions.js';
import type { Table } from './table.js';
import type { Workflow } from './workflow.js';

/** Keys per claim. The lock table of a database has about 6,400 places by default. */
const maxKeys = 250;
/** How long a suspended process may keep its keys locked. */
const lockMs = 10_000;

/** Where the next claim starts. */
export interface KeyTurn {
  /** The last key of the previous claim; null: the first key is next. */
  key: string | null;
  /** Records without a key begin: a claim of one record takes both kinds in turn. */
  isKeyless: boolean;
}

/** Rows that a claim may take, as lists of PostgreSQL that are passed on unread; null: none. */
interface Locked {
  ids: string | null;
  hashes: string | null;
  key: string | null;
}

type Fill = (sql: string, more?: Record<string, string>) => string;

/** `only`: these ids, or null. */
export async function claimLimited(
  sessions: Sessions,
  { queries: own, limit }: Table,
  turn: KeyTurn,
  [workflow, size, worker, timeoutMs, only]: readonly [number, number, number, number, string[] | null],
  claimed: ClaimedRows,
): Promise<ClaimedResult> {
  const { key: after, isKeyless } = turn;
  const keys = Math.min(size, maxKeys);
  const keylessPlaces = Math.floor((keys + Number(isKeyless)) / 2);
  const lock = limit?.isIndexed && only === null ? own.lockLimited : own.lockLimitedScan;
  const lockArgs = [workflow, size, keys, after, keylessPlaces, isKeyless, String(lockMs), only];
  turn.isKeyless = !isKeyless;
  // If the claim fails, the next one starts at the first key: the column may have another type by then.
  turn.key = null;
  return sessions.transaction(async (client) => {
    const { rows } = await sessions.queryOn<Locked>(client, lock, lockArgs);
    const { ids = null, hashes, key } = rows[0] ?? {};
    turn.key = key ?? after;
    if (ids === null) return { rows: [], fields: [] };
    const args = [workflow, size, worker, timeoutMs, ids, hashes];
    return sessions.queryOn<unknown[]>(client, own.claimLimited, args, claimed.config(client));
    // At this level, the second statement sees what was committed before the keys were locked.
  }, 'READ COMMITTED');
}

const hashOf = (text: string) => `hashtextextended(${text} COLLATE "C", 0)`;

/** The parts of the queries that name the key; without a limit they stay empty, and the queries are not used. */
export function limitPlaces(workflow: Workflow, key: Column | undefined): Record<string, string> {
  const name = key ? quoteName([key.name]) : 'NULL';
  const limitMax = String(workflow.limit?.max ?? 0);
  return {
    key: name,
    key_type: key?.base_type ?? 'text',
    limit_max: limitMax,
    // Counted one key at a time, and by LIMIT no further than needed: that makes the planner use an index scan, which
    // removes entries of finished claims from its way. A bitmap scan reads all of them again: 30,000 after as many claims.
    free_places: `${limitMax} - (SELECT count(*) FROM (
      SELECT FROM smart_router.claims AS c
      WHERE c.workflow = $1 AND c.limit_key = keys.hash AND c.token IS NOT NULL
      LIMIT ${limitMax}
    ) AS taken)`,
    hash_of_row: hashOf(`t.${name}::text`),
    hash_of_key: hashOf('key'),
    hash_of_found: hashOf('found.key'),
    lock_given: `pg_try_advisory_xact_lock(hashtextextended('smart_router.limit ' || given.key COLLATE "C", $1))`,
  };
}

export function limitQueries(fill: Fill, key: Column | undefined) {
  // Of the row before its claim: a trigger of the claim may change the key.
  const hashBefore = (id: string) =>
    `((SELECT jsonb_object_agg(id::text, hash) FROM picked) ->> ${id})::bigint`;
  const lock = (part: string) => fill(queries.lockLimited, { keys_and_rows: fill(part) });
  return {
    lockLimited: lock(queries.limitedByIndex),
    lockLimitedScan: lock(queries.limitedByScan),
    claimLimited: fill(queries.claim, {
      pick: fill(queries.pickLimited),
      set_limit_key: `, limit_key = ${hashBefore('c.record_id')}`,
      limit_column: ', limit_key',
      limit_value: `, ${hashBefore('"smart_router.id"')}`,
    }),
    ...(key && { listQueued: fill(queries.listQueuedLimited) }),
  };
}

const plainTypes =
  /^(smallint|integer|bigint|oid|uuid|boolean|date|bytea|text|character varying(\(\d+\))?|character(\(\d+\))?|numeric\(\d+,\d+\))$/;

/** Whether values of this column are equal only if their texts are. */
export const hasPlainType = ({ type, labels, is_deterministic }: Column) =>
  is_deterministic && (plainTypes.test(type) || labels !== null);

/** Whether an index lists queued rows by key and then in their order. */
export async function keyIndex(
  db: Queryable,
  oid: string,
  { status, order, limit }: Workflow,
  key: Column,
): Promise<boolean> {
  if (!hasPlainType(key)) return false;
  const { rows } = await db.query<{ names: string[]; condition: string | null }>(
    `SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
         LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum ORDER BY k.place) AS names,
       pg_get_expr(i.indpred, i.indrelid) AS condition
     FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam
     WHERE i.indrelid = $1::oid AND i.indisvalid AND m.amname = 'btree'
       -- Values that this collation takes for equal may have different texts.
       AND NOT EXISTS (SELECT FROM unnest(i.indcollation::oid[]) AS used (id) JOIN pg_collation AS l ON l.oid = used.id
         WHERE NOT l.collisdeterministic)`,
    [oid],
  );
  const wanted = [limit?.key, order[0]?.column];
  const starts = (names: readonly string[], first: readonly unknown[]) =>
    first.every((name, i) => names[i] === name);
  return rows.some(({ names, condition }) =>
    condition === null
      ? starts(names, [status.column, ...wanted])
      : starts(names, wanted) && coversStatus(condition, status.queued),
  );
}
