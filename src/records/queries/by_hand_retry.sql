-- Records that a person names, from Failed back to Queued, without their error and with their count of resets at 0:
-- a record that failed for its resets would otherwise fail at once again. Run it in REPEATABLE READ.
-- $1 workflow, $2 ids, $3 dead heartbeat (ms), $4 grace after the timeout (ms)
WITH judged AS MATERIALIZED (
  SELECT t.{id}::text COLLATE "default" AS record_id, g.record_id AS given, coalesce(c.resets, 0) AS resets, c.token
  FROM unnest($2::text[]) AS g (record_id)
    JOIN {table} AS t ON t.{id} = g.record_id::{id_type} AND t.{status} = {failed}
    LEFT JOIN smart_router.claims AS c ON c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
  WHERE c.token IS NULL OR {is_lost}
), changed AS (
  UPDATE {table} AS t SET {status} = {queued}{set_no_error}, {touched} = {now}
  WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM judged)) AND t.{status} = {failed}
  RETURNING t.{id}::text COLLATE "default" AS record_id, (t.{status} = {failed}) IS TRUE AS is_kept
), dropped AS (
  DELETE FROM smart_router.claims AS c USING changed WHERE c.workflow = $1 AND c.record_id = changed.record_id AND NOT is_kept
), noted AS (
  INSERT INTO smart_router.resets (workflow, record_id, token, reason, outcome, resets)
  SELECT $1, record_id, token, 'by_hand', 'requeued', resets FROM judged WHERE record_id IN (SELECT record_id FROM changed WHERE NOT is_kept)
)
SELECT given AS record_id FROM judged WHERE record_id IN (SELECT record_id FROM changed WHERE NOT is_kept)
