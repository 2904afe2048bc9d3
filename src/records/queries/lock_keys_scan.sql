-- The same without an index on the key, for a key of any type, or for the records $6: reads all queued rows.
-- $1 workflow, $2 how many, $3 the last key of the previous claim, or NULL, $4 milliseconds, $5 places for rows without a
-- key, $6 only these ids, or NULL
WITH bound AS MATERIALIZED (
  SELECT set_config('idle_in_transaction_session_timeout', $4::text, true), set_config('statement_timeout', $4::text, true)
), full_keys AS MATERIALIZED (
{full_keys}
), waiting AS MATERIALIZED (
  SELECT t.{key}::text COLLATE "C" AS key, count(*) AS records FROM {table} AS t
  WHERE t.{status} = {queued} AND ($6::text[] IS NULL OR t.{id}::text COLLATE "default" = ANY ($6)) AND {is_due}
  GROUP BY 1
), given AS MATERIALIZED (
  SELECT key FROM waiting WHERE key IS NOT NULL ORDER BY coalesce(key <= $3::text, false), key
)
SELECT given.key FROM bound, given
WHERE CASE WHEN {hash_of_given} IN (SELECT limit_key FROM full_keys) THEN false ELSE {lock_given} END
LIMIT $2::integer - least($5, coalesce((SELECT records FROM waiting WHERE key IS NULL), 0))
