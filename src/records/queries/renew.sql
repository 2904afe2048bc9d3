-- Changes claims that still hold; those not returned are lost. Restarts their timeout. For records that were reset
-- before, a variant also notes that the handler starts: if the worker dies now, this record may be the reason. Another
-- removes the worker from claims that it abandons: the recovery then takes them like those of a dead worker.
-- $1 workflow, $2 ids, $3 tokens
UPDATE smart_router.claims AS c SET {renewed}
FROM unnest($2::text[], $3::bigint[]) AS given (record_id, token)
WHERE c.workflow = $1 AND c.record_id = given.record_id AND c.token = given.token
RETURNING c.record_id, c.token
