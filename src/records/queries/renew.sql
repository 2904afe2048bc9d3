-- Claims that wait for their turn: their time begins anew. What is not returned no longer holds.
-- $1 workflow, $2 ids, $3 tokens
UPDATE smart_router.claims AS c SET claimed_at = now()
FROM unnest($2::text[], $3::bigint[]) AS given (record_id, token)
WHERE c.workflow = $1 AND c.record_id = given.record_id AND c.token = given.token
RETURNING c.record_id, c.token
