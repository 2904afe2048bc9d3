-- The record of each workflow that was stuck longest.
-- $1 since, $2 until
SELECT DISTINCT ON (1) coalesce(w.name, 'workflow ' || r.workflow) AS workflow, r.record_id AS id, r.at, r.reason, r.outcome,
  round(r.stuck_seconds)::float8 AS "stuckSeconds", r.worker, r.trace
FROM smart_router.resets AS r LEFT JOIN smart_router.workflows AS w ON w.id = r.workflow
WHERE r.at >= $1::timestamptz AND r.at < $2::timestamptz
ORDER BY 1, r.stuck_seconds DESC NULLS LAST, r.id
