-- Inside a transaction of the handler: the claim still holds, and nobody takes it before the commit.
-- $1 workflow, $2 id, $3 token
SELECT FROM smart_router.claims
WHERE workflow = $1 AND record_id = $2 AND token = $3::bigint
FOR UPDATE
