-- Resets by workflow, reason and outcome, and in the period of the same length before.
-- $1 since, $2 until
SELECT coalesce(w.name, 'workflow ' || r.workflow) AS workflow, r.reason, r.outcome,
  count(*) FILTER (WHERE r.at >= $1::timestamptz)::int AS records, count(*) FILTER (WHERE r.at < $1)::int AS before
FROM smart_router.resets AS r LEFT JOIN smart_router.workflows AS w ON w.id = r.workflow
WHERE r.at >= $1::timestamptz - ($2::timestamptz - $1::timestamptz) AND r.at < $2
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
