-- Takes the last full week (Monday 00:00 UTC to Monday) unless it was delivered or another replica has taken it. The week
-- in which the schema was created is the first one.
-- $1 name of the replica, $2 now, or NULL: the database's clock
WITH clock AS (
  SELECT coalesce($2::timestamptz, now()) AS now
), week AS (
  SELECT date_trunc('week', now AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS until, now FROM clock
)
INSERT INTO smart_router.reports AS r (since, until, taken_at, taken_by)
SELECT until - interval '168 hours', until, now, $1 FROM week
WHERE until > (SELECT min(at) FROM smart_router.migrations)
ON CONFLICT (until) DO UPDATE SET taken_at = excluded.taken_at, taken_by = excluded.taken_by
WHERE r.delivered_at IS NULL AND r.taken_at < excluded.taken_at - interval '15 minutes'
RETURNING r.since, r.until
