-- The record that was stuck longest, of each workflow.
-- $1 since, $2 until
SELECT DISTINCT ON (1) coalesce(w.name, 'workflow ' || r.workflow) AS workflow, r.record_id, r.at, r.reason, r.outcome,
  r.stuck_seconds, r.worker, r.trace
FROM smart_router.resets AS r LEFT JOIN smart_router.workflows AS w ON w.id = r.workflow
WHERE r.at >= $1::timestamptz AND r.at < $2::timestamptz
ORDER BY 1, r.stuck_seconds DESC NULLS LAST, r.id
