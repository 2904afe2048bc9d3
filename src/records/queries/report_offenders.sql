-- Records that were reset more than once, the worst $3 of each workflow, with their last reset.
-- $1 since, $2 until, $3 how many
SELECT workflow, id, times, "lastAt", workers, reason, outcome, trace FROM (
  SELECT coalesce(w.name, 'workflow ' || r.workflow) AS workflow, r.record_id AS id, count(*)::int AS times,
    max(r.at) AS "lastAt", count(DISTINCT r.worker)::int AS workers,
    (array_agg(r.reason ORDER BY r.id DESC))[1] AS reason, (array_agg(r.outcome ORDER BY r.id DESC))[1] AS outcome,
    (array_agg(r.trace ORDER BY r.id DESC) FILTER (WHERE r.trace IS NOT NULL))[1] AS trace,
    row_number() OVER (PARTITION BY r.workflow ORDER BY count(*) DESC, max(r.at) DESC) AS place
  FROM smart_router.resets AS r LEFT JOIN smart_router.workflows AS w ON w.id = r.workflow
  WHERE r.at >= $1::timestamptz AND r.at < $2::timestamptz
  GROUP BY r.workflow, w.name, r.record_id
  HAVING count(*) > 1
) AS repeated
WHERE place <= $3::integer
ORDER BY workflow, place
