-- Gives back claims that were never started. A record keeps its count of resets, and the time of the claim as that of its
-- last change: in an order by that time it goes to the back.
-- $1 workflow, $2 ids, $3 the token of each id (JSON)
WITH held AS MATERIALIZED (
  UPDATE smart_router.claims AS c SET token = NULL, worker = NULL, claimed_at = NULL
  WHERE c.workflow = $1 AND c.record_id = ANY($2::text[]) AND c.token = ($3::jsonb ->> c.record_id)::bigint
  RETURNING c.record_id
)
UPDATE {table} AS t SET {status} = {queued}
WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
RETURNING t.{id}::text COLLATE "default" AS record_id
