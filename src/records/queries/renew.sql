-- Restarts the timeout of claims; those not returned are lost. For records that were reset before, the variant also notes
-- that the handler starts: if the worker dies now, this record may be the reason.
-- $1 workflow, $2 ids, $3 tokens
UPDATE smart_router.claims AS c SET claimed_at = now(){set_begun}
FROM unnest($2::text[], $3::bigint[]) AS given (record_id, token)
WHERE c.workflow = $1 AND c.record_id = given.record_id AND c.token = given.token
RETURNING c.record_id, c.token
