-- Notes when a row in Processing without a timestamp was first seen: it ages from then.
-- $1 workflow, $2 how many; for a range of blocks also $3 from, $4 to
INSERT INTO smart_router.claims AS c (workflow, record_id, seen_at)
SELECT $1, t.{id}::text COLLATE "default", now()
FROM {table} AS t
WHERE t.{status} = {processing} AND t.{touched} IS NULL{range}
  AND NOT EXISTS (
    SELECT FROM smart_router.claims AS c
    WHERE c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default" AND (c.seen_at IS NOT NULL OR c.token IS NOT NULL)
  )
LIMIT $2
ON CONFLICT (workflow, record_id) DO UPDATE SET seen_at = excluded.seen_at
WHERE c.token IS NULL AND c.seen_at IS NULL
