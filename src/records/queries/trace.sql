-- Stores the latest notes of handlers, for records that are still claimed.
-- $1 workflow, $2 ids, $3 tokens, $4 notes
UPDATE smart_router.claims AS c SET trace = given.note
FROM unnest($2::text[], $3::bigint[], $4::text[]) AS given (record_id, token, note)
WHERE c.workflow = $1 AND c.record_id = given.record_id AND c.token = given.token
