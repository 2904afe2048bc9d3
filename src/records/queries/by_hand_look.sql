-- Records that a person names, in the order given: what state each is in, and whether somebody works on it.
-- $1 workflow, $2 ids, $3 dead heartbeat (ms), $4 grace after the timeout (ms)
SELECT g.record_id, t.{status}::text AS status, coalesce(c.resets, 0) AS resets, c.trace,
  w.host || ' ' || w.pid AS worker,
  coalesce(t.{status} = {processing}, false) AS is_processing,
  coalesce(t.{status} = {failed}, false) AS is_failed,
  c.token IS NOT NULL AND NOT {is_lost} AS is_live,
  CASE WHEN isfinite(since) THEN extract(epoch FROM now() - since) END AS stuck_seconds
FROM unnest($2::text[]) WITH ORDINALITY AS g (record_id, place)
  LEFT JOIN {table} AS t ON t.{id} = g.record_id::{id_type}
  LEFT JOIN smart_router.claims AS c ON c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
  LEFT JOIN smart_router.workers AS w ON w.id = c.worker
  CROSS JOIN LATERAL (
    SELECT CASE WHEN c.token IS NULL THEN coalesce({touched_at}, c.seen_at) ELSE c.claimed_at END AS since
  ) AS aged
ORDER BY g.place
