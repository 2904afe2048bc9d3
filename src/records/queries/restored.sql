-- Right after a claim: which of its records a trigger has set back to Queued.
-- $1 workflow, $2 ids, $3 tokens
SELECT given.record_id
FROM unnest($2::text[], $3::bigint[]) AS given (record_id, token)
  JOIN {table} AS t ON t.{id} = given.record_id::{id_type} AND t.{status} = {queued}
  JOIN smart_router.claims AS c ON c.workflow = $1 AND c.record_id = given.record_id AND c.token = given.token
