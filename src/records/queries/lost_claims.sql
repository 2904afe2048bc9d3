-- Returns those of the claims that no longer hold.
-- $1 workflow, $2 ids, $3 tokens
SELECT given.record_id, given.token
FROM unnest($2::text[], $3::bigint[]) AS given (record_id, token)
WHERE NOT EXISTS (
  SELECT FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.record_id = given.record_id AND c.token = given.token
)
