-- What the next claim would take.
-- $1 workflow, $2 how many
SELECT {id}::text AS record_id FROM {table}
WHERE {status} = {queued}
  AND {id}::text NOT IN (
    SELECT record_id FROM smart_router.claims WHERE workflow = $1 AND not_before > now()
  )
ORDER BY {order}
LIMIT $2
