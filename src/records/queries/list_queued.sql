-- The ids that the next claim would take.
-- $1 workflow, $2 how many
SELECT t.{id}::text COLLATE "default" AS record_id FROM {table} AS t
WHERE t.{status} = {queued}
  AND NOT EXISTS (
    SELECT FROM smart_router.claims AS c
    WHERE c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default" AND c.not_before > now()
    OFFSET 0
  )
ORDER BY {order}
LIMIT $2
