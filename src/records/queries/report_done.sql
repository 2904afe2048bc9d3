-- Stores a delivered report, and deletes counts too old for any report.
-- $1 until, $2 the report
WITH forgotten AS (
  DELETE FROM smart_router.late_finishes WHERE hour < now() - interval '90 days'
)
UPDATE smart_router.reports SET delivered_at = now(), report = $2::jsonb WHERE until = $1::timestamptz
