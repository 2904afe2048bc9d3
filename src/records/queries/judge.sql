-- Part of both sweeps: judges the records of `lost` by budget and policy, and writes their status. `done` are those to
-- note; the claims of those that failed are deleted.
judged AS MATERIALIZED (
  SELECT *, {verdict} AS outcome FROM lost
), changed AS (
  UPDATE {table} AS t
  SET {status} = CASE WHEN {is_failed} THEN {failed} ELSE {queued} END{set_error_reset}, {touched} = {now}
  WHERE t.{id} = ANY (ARRAY(SELECT id FROM judged WHERE outcome <> 'held')) AND (t.{status} = {processing}) IS TRUE
  RETURNING t.{id} AS id, (t.{status} = {processing}) IS TRUE AS is_kept
), done AS MATERIALIZED (
  -- A trigger may have kept a row unchanged without an error.
  SELECT * FROM judged WHERE outcome = 'held' OR id IN (SELECT id FROM changed WHERE NOT is_kept)
), dropped AS (
  DELETE FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.record_id = ANY (ARRAY(SELECT record_id FROM done WHERE outcome = 'failed'))
)
