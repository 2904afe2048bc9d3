/**
 * Limits per key: at most `max` records with the same value of a column of the team's table are claimed at once.
 *
 * Guarantee: exact over all workers whose workflow states the limit. A claim is one transaction at READ COMMITTED. It
 * first locks the keys that it may use (advisory locks, never waiting), then counts and claims in one statement. That
 * statement's snapshot is younger than the locks, and locks are released after the commit is visible, so it sees every
 * claim of these keys. A count before the lock would not: two claims could both see the last free place.
 *
 * Nothing is counted in advance: places are the claims that have a token, so a finish, a release or a reset frees one.
 * Keys take turns: each claim starts after the last key of the previous one. A claim is stored with a hash of the key's
 * text; two keys with the same hash would share one limit.
 *
 * Weakness: a claim looks at all queued rows of the keys that it passes while these wait for a retry: 50,000 of them cost
 * it 0.4 s. A key whose text differs for equal values (a numeric without a scale, citext), and a table without the
 * advised index, are read by a scan of all queued rows.
 */
import type { QueryResult } from 'pg';
import type { ClaimedRows } from './claimed-rows.js';
import { type Column, coversStatus } from './columns.js';
import { quoteName } from './identifiers.js';
import { queries } from './queries.generated.js';
import type { Queryable, Sessions } from './sessions.js';
import type { Table } from './table.js';
import type { Row, Workflow } from './workflow.js';

/** Keys per claim. The lock table of a database has about 6,400 places by default. */
const maxKeys = 200;
/** How long a suspended process may keep its keys locked. */
const lockMs = 10_000;

/** Where the next claim starts. */
export interface KeyTurn {
  /** The last key of the previous claim; null: the first key is next. */
  key: string | null;
  /** Records without a key begin: a claim of one record takes both kinds in turn. */
  isKeyless: boolean;
}

type Fill = (sql: string, more?: Record<string, string>) => string;

/** `args`: workflow, how many, worker, timeout, only these ids or null. */
export async function claimLimited(
  sessions: Sessions,
  { queries: own, limit }: Table,
  turn: KeyTurn,
  args: readonly unknown[],
  claimed: ClaimedRows,
): Promise<QueryResult<Row>> {
  const [workflow, size, , , only] = args;
  const walks = limit?.isIndexed === true && only === null;
  const { key: after, isKeyless } = turn;
  const most = Math.min(Number(size), maxKeys);
  const keylessPlaces = Math.floor((most + Number(isKeyless)) / 2);
  const wanted = [workflow, most, after, String(lockMs), keylessPlaces, ...(walks ? [] : [only])];
  const [lock, claim] = walks ? [own.lockKeys, own.claimLimited] : [own.lockKeysScan, own.claimLimitedScan];
  turn.isKeyless = !isKeyless;
  // If the claim fails, the next one starts at the first key: the column may have another type by then.
  turn.key = null;
  return sessions.transaction(async (client) => {
    const { rows } = await sessions.queryOn<{ key: string }>(client, lock, wanted);
    const keys = rows.map(({ key }) => key);
    const claimArgs = [...args, keys, isKeyless];
    const result = await sessions.queryOn<Row>(client, claim, claimArgs, claimed.types(client));
    turn.key = keys.at(-1) ?? after;
    return result;
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
    key_type: key?.type_path ?? 'text',
    limit_max: limitMax,
    full_keys: queries.fullKeys.replace('{limit_max}', limitMax),
    hash_of_row: hashOf(`t.${name}::text`),
    hash_of_given: hashOf('given.key'),
    lock_given: `pg_try_advisory_xact_lock(hashtextextended('smart_router.limit ' || given.key COLLATE "C", $1))`,
  };
}

export function limitQueries(fill: Fill, key: Column | undefined, idName: string) {
  const hash = hashOf(`marked.${quoteName([key?.name ?? ''])}::text`);
  const claim = (pick: string) =>
    fill(queries.claim, {
      pick: fill(pick),
      set_limit_key: `,
    limit_key = ((SELECT jsonb_object_agg(marked.${idName}::text, ${hash}) FROM marked) ->> c.record_id)::bigint`,
      limit_column: ', limit_key',
      limit_value: `, ${hash}`,
    });
  return {
    claimLimited: claim(queries.pickLimited),
    claimLimitedScan: claim(queries.pickLimitedScan),
    ...(key && { listQueued: fill(queries.listQueuedLimited) }),
  };
}

/** Types whose values are equal only if their texts are. */
const plainTypes =
  /^(smallint|integer|bigint|oid|uuid|boolean|date|bytea|text|character varying(\(\d+\))?|character(\(\d+\))?|numeric\(\d+,\d+\))$/;

/** Whether an index lists queued rows by key and then in their order. */
export async function keyIndex(
  db: Queryable,
  oid: string,
  { status, order, limit }: Workflow,
  key: Column,
): Promise<boolean> {
  if (!plainTypes.test(key.type) && !key.labels) return false;
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
