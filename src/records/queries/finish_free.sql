-- As finish, for a batch in which somebody keeps rows locked: only those that are free, without a wait.
-- $1 workflow, $2 ids, $3 the token of each id (JSON), $4 the error of each id that failed (JSON)
WITH bound AS MATERIALIZED (
  SELECT set_config('lock_timeout', '2000', true)
), free AS MATERIALIZED (
  SELECT t.{id} AS id FROM {table} AS t
  WHERE t.{id} = ANY ($2::text[]::{id_type}[]) AND (t.{status} = {processing}) IS TRUE
  FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
  DELETE FROM smart_router.claims AS c
  USING bound
  WHERE c.workflow = $1 AND c.record_id = ANY (ARRAY(SELECT id::text COLLATE "default" FROM free))
    AND c.token = ($3::jsonb ->> c.record_id)::bigint
  RETURNING c.record_id
), written AS (
  UPDATE {table} AS t
  SET {status} = CASE WHEN $4::jsonb ? t.{id}::text COLLATE "default" THEN {failed} ELSE {completed} END{set_error_finish}, {touched} = {now}
  WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
  RETURNING t.{id}::text COLLATE "default" AS record_id, (t.{status} = {queued} OR t.{status} = {processing}) AS is_kept
)
SELECT held.record_id, written.is_kept FROM held LEFT JOIN written USING (record_id)
