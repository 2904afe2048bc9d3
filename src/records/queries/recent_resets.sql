-- What was brought back since a time ago, newest first.
-- $1 milliseconds, $2 names of workflows, $3 most
SELECT w.name AS workflow, r.record_id AS id, r.at, r.reason, r.outcome, r.stuck_seconds, r.worker, r.trace
FROM smart_router.resets AS r JOIN smart_router.workflows AS w ON w.id = r.workflow
WHERE r.at >= now() - $1::bigint * interval '1 ms' AND w.name = ANY ($2::text[])
ORDER BY r.at DESC, r.id DESC
LIMIT $3
