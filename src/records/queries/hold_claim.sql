-- Inside a transaction of the handler: the claim holds, and no recovery takes it before the commit. At the beginning a
-- weak lock, so that its notes can still be written; at the end a strong one, so that not even a new claim (somebody
-- has queued the record by hand) comes between this look and the commit. A handler that hangs in its transaction must
-- not keep its record for ever: after $4 the database itself ends it. `xact` tells later whether it was committed.
-- $1 workflow, $2 id, $3 token, $4 milliseconds
SELECT pg_current_xact_id()::text AS xact, set_config('idle_in_transaction_session_timeout', $4::text, true), set_config('statement_timeout', $4::text, true)
FROM smart_router.claims
WHERE workflow = $1 AND record_id = $2 AND token = $3::bigint
FOR {lock}
