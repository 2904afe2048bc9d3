-- Removes the worker from claims that a live worker abandons: the recovery then takes them like those of a dead worker.
-- $1 workflow, $2 ids, $3 tokens
UPDATE smart_router.claims AS c SET worker = NULL
FROM unnest($2::text[], $3::bigint[]) AS given (record_id, token)
WHERE c.workflow = $1 AND c.record_id = given.record_id AND c.token = given.token
RETURNING c.record_id
