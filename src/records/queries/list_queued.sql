-- The ids that the next claim would take.
-- $1 workflow, $2 how many
SELECT t.{id}::text COLLATE "default" AS record_id FROM {table} AS t
WHERE t.{status} = {queued} AND {is_due}
ORDER BY {order}
LIMIT $2
