-- Resets of a workflow in the last 7 days by reason, and its longest-running claim of a live worker.
-- $1 workflow, $2 dead heartbeat (ms)
SELECT count(*) FILTER (WHERE reason = 'timed_out')::int AS "timedOut",
  count(*) FILTER (WHERE reason = 'dead_worker')::int AS "deadWorker",
  count(*) FILTER (WHERE reason = 'unclaimed')::int AS unclaimed,
  (SELECT extract(epoch FROM now() - min(c.claimed_at))::float8 FROM smart_router.claims AS c
     JOIN smart_router.workers AS w ON w.id = c.worker AND w.heartbeat_at >= now() - $2::bigint * interval '1 ms'
    WHERE c.workflow = $1 AND c.token IS NOT NULL) AS "longestSeconds"
FROM smart_router.resets WHERE workflow = $1 AND at > now() - interval '7 days'
