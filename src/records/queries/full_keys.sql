-- Part of other queries: the keys that have no free place.
-- $1 workflow
  SELECT c.limit_key FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.limit_key IS NOT NULL AND c.token IS NOT NULL
  GROUP BY c.limit_key
  HAVING count(*) >= {limit_max}
