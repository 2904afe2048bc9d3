-- After a lost reply: which of these outcomes were written. Either the row has the status, the record has no claim, and this
-- token has no reset; or the failed record was queued for its retry.
-- $1 workflow, $2 ids, $3 tokens, $4 completed or not
SELECT given.record_id
FROM unnest($2::text[], $3::bigint[], $4::boolean[]) AS given (record_id, token, completed)
  JOIN {table} AS t ON t.{id} = given.record_id::{id_type}
WHERE (NOT given.completed AND EXISTS (
    SELECT FROM smart_router.claims AS c
    WHERE c.workflow = $1 AND c.record_id = given.record_id AND c.retried = given.token
  )) OR t.{status} = CASE WHEN given.completed THEN {completed} ELSE {failed} END
  AND NOT EXISTS (SELECT FROM smart_router.claims AS c WHERE c.workflow = $1 AND c.record_id = given.record_id)
  AND NOT EXISTS (
    SELECT FROM smart_router.resets AS r
    WHERE r.workflow = $1 AND r.record_id = given.record_id AND r.token = given.token
  )
