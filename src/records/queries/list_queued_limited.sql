-- The ids that the next claims of a workflow with a limit would take: none of a full key, and the first of every key before
-- the second of any. Reads all queued rows.
-- $1 workflow, $2 how many
WITH full_keys AS MATERIALIZED (
  SELECT c.limit_key FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.limit_key IS NOT NULL AND c.token IS NOT NULL
  GROUP BY c.limit_key
  HAVING count(*) >= {limit_max}
)
SELECT queued.id::text COLLATE "default" AS record_id
FROM (
  SELECT t.{id} AS id, {hash_of_row} AS hash, row_number() OVER (ORDER BY {order}) AS place,
    row_number() OVER (PARTITION BY {hash_of_row} ORDER BY {order}) AS rank
  FROM {table} AS t
  WHERE t.{status} = {queued} AND {is_due}
) AS queued
WHERE queued.hash IS NULL OR queued.hash NOT IN (SELECT limit_key FROM full_keys)
ORDER BY queued.rank, queued.place
LIMIT $2
