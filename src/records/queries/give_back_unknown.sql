-- After a claim whose answer was lost: gives back what worker $2 was given and does not know of.
-- $1 workflow, $2 worker, $3 the latest token that it knew before, $4 those that it has learned of since
WITH held AS MATERIALIZED (
  UPDATE smart_router.claims AS c SET token = NULL, worker = NULL, claimed_at = NULL
  WHERE c.workflow = $1 AND c.worker = $2::integer AND c.token > $3::bigint AND c.token <> ALL ($4::bigint[])
  RETURNING c.record_id
)
UPDATE {table} AS t SET {status} = {queued}
WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
RETURNING t.{id}::text COLLATE "default" AS record_id
