-- Gives back claims that were never started: as if they had not been taken; a record keeps its count of resets.
-- $1 workflow, $2 ids, $3 the token of each id (JSON)
WITH held AS MATERIALIZED (
  UPDATE smart_router.claims AS c SET token = NULL, worker = NULL, claimed_at = NULL
  WHERE c.workflow = $1 AND c.record_id = ANY($2::text[]) AND c.token = ($3::jsonb ->> c.record_id)::bigint
  RETURNING c.record_id
)
UPDATE {table} AS t SET {status} = {queued}
WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
RETURNING t.{id}::text COLLATE "default" AS record_id
