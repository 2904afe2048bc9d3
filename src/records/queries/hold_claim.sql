-- Inside a transaction of the handler: the claim holds, and no recovery takes it before the commit. Its notes can still
-- be written: that is what the weaker lock is for.
-- $1 workflow, $2 id, $3 token
SELECT FROM smart_router.claims
WHERE workflow = $1 AND record_id = $2 AND token = $3::bigint
FOR KEY SHARE
