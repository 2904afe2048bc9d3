-- Resets per day (UTC).
-- $1 since, $2 until
SELECT coalesce(w.name, 'workflow ' || r.workflow) AS workflow, to_char(r.at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day,
  count(*)::int AS records
FROM smart_router.resets AS r LEFT JOIN smart_router.workflows AS w ON w.id = r.workflow
WHERE r.at >= $1::timestamptz AND r.at < $2::timestamptz
GROUP BY 1, 2
ORDER BY 1, 2
