-- Writes outcomes whose token still holds; what is not returned came too late. Of each, `is_kept`: false if it was
-- written, true if a trigger set the status back, NULL if the row was not changed.
-- Somebody's open transaction on one of the rows is waited for no longer than 2 s, whatever the database's own bound is.
-- $1 workflow, $2 ids, $3 the token of each id (JSON), $4 the error of each id that failed (JSON)
WITH bound AS MATERIALIZED (
  SELECT set_config('lock_timeout', '2000', true)
), held AS MATERIALIZED (
  DELETE FROM smart_router.claims AS c
  USING bound
  WHERE c.workflow = $1 AND c.record_id = ANY($2::text[]) AND c.token = ($3::jsonb ->> c.record_id)::bigint
  RETURNING c.record_id
), written AS (
  UPDATE {table} AS t
  SET {status} = CASE WHEN $4::jsonb ? t.{id}::text COLLATE "default" THEN {failed} ELSE {completed} END{set_error_finish}, {touched} = {now}
  -- In this form the status is checked and no index on it is tempting.
  WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
  RETURNING t.{id}::text COLLATE "default" AS record_id, (t.{status} = {queued} OR t.{status} = {processing}) AS is_kept
)
SELECT held.record_id, written.is_kept FROM held LEFT JOIN written USING (record_id)
