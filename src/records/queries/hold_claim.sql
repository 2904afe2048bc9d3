-- Inside a handler's transaction: checks the claim, and locks it against the recovery until the commit. A weak lock at the
-- beginning, so that its trace can still be written; a strong one at the end, so that not even a new claim (an operator
-- has requeued the record) comes between this check and the commit. After $4 ms the database itself ends the transaction
-- of a handler that hangs. `xact` later tells whether it was committed.
-- $1 workflow, $2 id, $3 token, $4 milliseconds
SELECT pg_current_xact_id()::text AS xact, set_config('idle_in_transaction_session_timeout', $4::text, true), set_config('statement_timeout', $4::text, true)
FROM smart_router.claims
WHERE workflow = $1 AND record_id = $2 AND token = $3::bigint
FOR {lock}
