-- Before the claim of a workflow with a limit: locks, for this transaction, up to $2 keys that have a queued record and a
-- free place. Starts after key $3 and wraps around, so that keys take turns. Keys that another claim has locked are skipped.
-- Jumps from key to key in an index on it, and stops at the last key that it locks (a recursive query is evaluated as far
-- as its rows are needed): the number of queued rows does not matter. Full keys are only skipped here; what decides is
-- the count in the claim, under the lock.
-- The lock comes last (CASE): a lock on every full key could fill the lock table of the database.
-- Every key that it locks gets a record, so it leaves up to $5 places to rows without a key: a key that was locked and got
-- none would lose its turn.
-- $1 workflow, $2 how many, $3 the last key of the previous claim, or NULL, $4 milliseconds, $5 places for rows without a key
WITH RECURSIVE bound AS MATERIALIZED (
  -- A process that is suspended here must not keep its keys locked.
  SELECT set_config('idle_in_transaction_session_timeout', $4::text, true), set_config('statement_timeout', $4::text, true)
), full_keys AS MATERIALIZED (
{full_keys}
), later AS (
  (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} > $3::text::{key_type} AND {is_due}
    ORDER BY t.{key} LIMIT 1
  )
  UNION ALL
  SELECT next.key FROM later CROSS JOIN LATERAL (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} > later.key AND {is_due}
    ORDER BY t.{key} LIMIT 1
  ) AS next
), earlier AS (
  (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} IS NOT NULL AND ($3::text IS NULL OR t.{key} <= $3::text::{key_type}) AND {is_due}
    ORDER BY t.{key} LIMIT 1
  )
  UNION ALL
  SELECT next.key FROM earlier CROSS JOIN LATERAL (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} > earlier.key AND ($3::text IS NULL OR t.{key} <= $3::text::{key_type}) AND {is_due}
    ORDER BY t.{key} LIMIT 1
  ) AS next
)
SELECT given.key FROM bound, (
  SELECT key::text COLLATE "C" AS key FROM later
  UNION ALL
  SELECT key::text COLLATE "C" FROM earlier
) AS given
WHERE CASE WHEN {hash_of_given} IN (SELECT limit_key FROM full_keys) THEN false ELSE {lock_given} END
LIMIT $2::integer - (
  SELECT count(*) FROM (
    SELECT FROM {table} AS t WHERE t.{status} = {queued} AND t.{key} IS NULL AND {is_due} LIMIT $5
  ) AS keyless
)
