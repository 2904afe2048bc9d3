-- Limits per key and retries of failed records. All columns are NULL for workflows without them, and cost no byte there.
-- A worker of the version before writes none of them: its claims do not count against a limit, its failures are final, and
-- it waits for `not_before` as before.
ALTER TABLE smart_router.claims
  -- Hash of the record's key, for a workflow with a limit: claims with a token count against it.
  ADD COLUMN limit_key bigint,
  -- Failed runs that were queued again.
  ADD COLUMN attempts smallint,
  -- The token of the latest of them: shows, after a lost reply, that it was written.
  ADD COLUMN retried bigint;

CREATE INDEX claims_limited ON smart_router.claims (workflow, limit_key) WHERE limit_key IS NOT NULL;
