-- Before the handler of a record that came back: if its worker dies now, this record may be why. Its time begins anew.
-- What is not returned no longer holds.
-- $1 workflow, $2 id, $3 token
UPDATE smart_router.claims AS c SET begun = c.token, claimed_at = now()
WHERE c.workflow = $1 AND c.record_id = $2 AND c.token = $3::bigint
RETURNING c.record_id
