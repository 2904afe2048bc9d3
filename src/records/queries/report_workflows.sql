-- Every workflow: records held for a person now, and late finishes (NULL: no process counted them).
-- $1 since, $2 until
SELECT w.name AS workflow,
  (SELECT count(*)::int FROM smart_router.claims AS c WHERE c.workflow = w.id AND c.held_at IS NOT NULL) AS held,
  (SELECT sum(l.records)::float8 FROM smart_router.late_finishes AS l
    WHERE l.workflow = w.name AND l.hour >= $1::timestamptz AND l.hour < $2::timestamptz) AS late,
  (SELECT sum(l.records)::float8 FROM smart_router.late_finishes AS l
    WHERE l.workflow = w.name AND l.hour >= $1::timestamptz - ($2::timestamptz - $1::timestamptz) AND l.hour < $1) AS "lateBefore"
FROM smart_router.workflows AS w
ORDER BY w.name
