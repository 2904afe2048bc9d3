-- Returns claims that were never started to the queue. A record keeps its count of resets. It also keeps the time of the
-- claim as its last change, so it moves to the back of an order by that time.
-- The number of ids is hidden from the planner, as in finish.sql.
-- $1 workflow, $2 ids, $3 their tokens (`idsAndTokens`)
-- After a claim whose reply was lost instead: $2 worker, $3 its latest known token, $4 tokens it received since.
WITH held AS MATERIALIZED (
  UPDATE smart_router.claims AS c SET token = NULL, worker = NULL, claimed_at = NULL, limit_key = NULL
  WHERE c.workflow = $1 AND {released}
  RETURNING c.record_id
)
UPDATE {table} AS t SET {status} = {queued}
WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
RETURNING t.{id}::text COLLATE "default" AS record_id
