-- Resets since a time ago, the newest first.
-- $1 milliseconds, $2 names of workflows, $3 how many
SELECT w.name AS workflow, r.record_id AS id, r.at, r.reason, r.outcome, r.stuck_seconds AS "stuckSeconds", r.worker, r.trace
FROM smart_router.resets AS r JOIN smart_router.workflows AS w ON w.id = r.workflow
WHERE r.at >= now() - $1::bigint * interval '1 ms' AND w.name = ANY ($2::text[])
ORDER BY r.at DESC, r.id DESC
LIMIT $3
