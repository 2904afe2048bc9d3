-- Counts resets since a time ago, by workflow, reason and outcome.
-- $1 milliseconds, $2 names of workflows
SELECT w.name AS workflow, r.reason, r.outcome, count(*)::int AS records
FROM smart_router.resets AS r JOIN smart_router.workflows AS w ON w.id = r.workflow
WHERE r.at >= now() - $1::bigint * interval '1 ms' AND w.name = ANY ($2::text[])
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
