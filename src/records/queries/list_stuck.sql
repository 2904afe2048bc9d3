-- Records that both sweeps would recover now, the oldest first, then those already held for a person. Reads only.
-- $1 workflow, $2 how many, $3 dead heartbeat (ms), or NULL: heartbeats do not count, $4 grace after the timeout (ms),
-- $5 stuck after (ms), $6 true: only records of the slow sweep, false: only of the fast one, NULL: both
WITH found AS (
  SELECT c.record_id, c.resets, {counts} AS counts, c.trace, c.claimed_at AS since, w.host || ' ' || w.pid AS worker,
    {reason} AS reason, false AS is_held
  FROM smart_router.claims AS c
    JOIN {table} AS t ON t.{id} = c.record_id::{id_type} AND t.{status} = {processing}
    LEFT JOIN smart_router.workers AS w ON w.id = c.worker
  WHERE c.workflow = $1 AND c.token IS NOT NULL AND {is_lost}
  UNION ALL
  SELECT t.{id}::text COLLATE "default", coalesce(c.resets, 0), true, c.trace, coalesce({touched_at}, c.seen_at), NULL, 'unclaimed',
    c.held_at IS NOT NULL
  FROM {table} AS t LEFT JOIN smart_router.claims AS c ON c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
  WHERE t.{status} = {processing} AND c.token IS NULL
    AND (c.held_at IS NOT NULL OR coalesce({touched_at}, c.seen_at) < now() - $5::bigint * interval '1 ms')
), judged AS (
  SELECT *, CASE WHEN is_held THEN 'held' ELSE {verdict} END AS outcome,
    coalesce(CASE WHEN isfinite(since) THEN extract(epoch FROM now() - since)::float8 END, 0) AS stuck_seconds
  FROM found
  WHERE $6::boolean IS NULL OR $6 = (reason = 'unclaimed')
)
SELECT record_id AS id, reason, resets, trace, worker, stuck_seconds AS "stuckSeconds", outcome, is_held AS "isHeld",
  count(*) OVER () AS total, max(stuck_seconds) OVER () AS oldest_seconds,
  count(*) FILTER (WHERE outcome = 'requeued') OVER () AS requeued,
  count(*) FILTER (WHERE outcome = 'failed') OVER () AS failed,
  count(*) FILTER (WHERE outcome = 'held' AND NOT is_held) OVER () AS held
FROM judged
ORDER BY is_held, since NULLS FIRST
LIMIT $2
