-- Before the claim of a workflow with a limit: locks, for this transaction, up to $3 keys that have a queued record and a
-- free place, and up to $2 rows: as many of each key as it has places, and rows without a key. Returns the rows as two
-- lists, their ids and the hashes of their keys, and the last key.
-- Starts after key $4 and wraps around, so that keys take turns. Keys that another claim has locked are skipped. Full keys
-- are only skipped here; what decides is the count in the claim, under the locks.
-- The lock of a key comes last (CASE): a lock on every full key could fill the lock table of the database.
-- Locks only keys that get a record; others would lose their turn. So up to $5 places are left to rows without a key.
-- Rows with and without a key alternate; $6: those without begin.
-- {keys_and_rows}: limited_by_index.sql or limited_by_scan.sql. They define `keys`, in the order of their turns, and `keyed`,
-- the rows of the locked keys.
-- $1 workflow, $2 how many rows, $3 how many keys, $4 the last key of the previous claim, or NULL, $5 places for rows
-- without a key, $6 whether they begin, $7 milliseconds, $8 only these ids, or NULL
WITH RECURSIVE bound AS MATERIALIZED (
  -- A process that is suspended here must not keep its keys locked.
  SELECT set_config('idle_in_transaction_session_timeout', $7::text, true), set_config('statement_timeout', $7::text, true)
), keyless AS MATERIALIZED (
  SELECT t.{id} AS id FROM {table} AS t
  WHERE t.{status} = {queued} AND t.{key} IS NULL AND {is_chosen} AND {is_due}
  ORDER BY {order}
  LIMIT $2
  FOR UPDATE OF t SKIP LOCKED
), locked AS MATERIALIZED (
  SELECT given.key, given.hash, given.free, row_number() OVER () AS turn
  FROM bound, (SELECT keys.key, keys.hash, {free_places} AS free FROM keys OFFSET 0) AS given
  WHERE CASE WHEN given.free <= 0 THEN false ELSE {lock_given} END
  LIMIT $3::integer - least($5, (SELECT count(*) FROM keyless))
), share AS MATERIALIZED (
  SELECT ceil($2::integer / greatest(1, count(*))::numeric) AS records FROM locked
),
{keys_and_rows}
SELECT array_agg(id)::text AS ids, array_agg(hash)::text AS hashes, (SELECT key FROM locked ORDER BY turn DESC LIMIT 1) AS key
FROM (
  SELECT id::text, hash FROM (
    SELECT id, hash, row_number() OVER (ORDER BY rank, turn) AS turn, true AS has_key FROM keyed
    UNION ALL
    SELECT id, NULL, row_number() OVER (), false FROM keyless
  ) AS both_kinds
  ORDER BY turn, has_key = $6::boolean
  LIMIT $2
) AS chosen
