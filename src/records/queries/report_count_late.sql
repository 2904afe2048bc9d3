-- Adds to the late finishes of this hour.
-- $1 workflows, $2 records
INSERT INTO smart_router.late_finishes AS l (hour, workflow, records)
SELECT date_trunc('hour', now()), given.workflow, given.records
FROM unnest($1::text[], $2::bigint[]) AS given (workflow, records)
-- The same order everywhere prevents deadlocks.
ORDER BY given.workflow
ON CONFLICT (hour, workflow) DO UPDATE SET records = l.records + excluded.records
