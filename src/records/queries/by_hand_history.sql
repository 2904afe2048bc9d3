-- What the last week tells of a workflow's times: resets by reason, and the longest that somebody works on now.
-- $1 workflow, $2 dead heartbeat (ms)
SELECT
  (SELECT count(*) FROM smart_router.resets
    WHERE workflow = $1 AND reason = 'timed_out' AND at > now() - interval '7 days') AS timed_out,
  (SELECT count(*) FROM smart_router.resets
    WHERE workflow = $1 AND reason = 'dead_worker' AND at > now() - interval '7 days') AS dead_worker,
  (SELECT count(*) FROM smart_router.resets
    WHERE workflow = $1 AND reason = 'unclaimed' AND at > now() - interval '7 days') AS unclaimed,
  (SELECT extract(epoch FROM now() - min(c.claimed_at)) FROM smart_router.claims AS c
     JOIN smart_router.workers AS w ON w.id = c.worker AND w.heartbeat_at >= now() - $2::bigint * interval '1 ms'
    WHERE c.workflow = $1 AND c.token IS NOT NULL) AS longest_seconds
