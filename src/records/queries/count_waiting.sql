-- Failed records that wait for their retry, the seconds until the first of them is due, and the keys that have no free place.
-- $1 workflow
SELECT CASE WHEN {has_retry} THEN count(*)::int END AS "waitingForRetry",
  extract(epoch FROM min(c.not_before) - now())::float8 AS "nextRetrySeconds",
  CASE WHEN {limit_max} > 0 THEN (SELECT count(*)::int FROM ({full_keys}) AS full_keys) END AS "keysAtLimit"
FROM smart_router.claims AS c
WHERE c.workflow = $1 AND {is_waiting}
