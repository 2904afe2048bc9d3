-- Failed records that wait for their retry, the seconds until the first of them is due, and the keys that have no free place.
-- $1 workflow
SELECT CASE WHEN {has_retry} THEN count(*)::int END AS "waitingForRetry",
  extract(epoch FROM min(c.not_before) - now())::float8 AS "nextRetrySeconds",
  CASE WHEN {limit_max} > 0 THEN (
    SELECT count(*)::int FROM (
      SELECT FROM smart_router.claims AS k
      WHERE k.workflow = $1 AND k.limit_key IS NOT NULL AND k.token IS NOT NULL
      GROUP BY k.limit_key
      HAVING count(*) >= {limit_max}
    ) AS full_keys
  ) END AS "keysAtLimit"
FROM smart_router.claims AS c
WHERE c.workflow = $1 AND {is_waiting}
