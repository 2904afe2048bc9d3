-- Puts records that an operator names from Processing (for a retry: from Failed) back to Queued, except those that a live
-- worker holds. A retry also ends the pause of a queued record that waits for its next attempt. Resets and attempts count
-- from 0: a record that failed because of them would otherwise fail again at once.
-- Run it in REPEATABLE READ: a record claimed in between makes it fail, never pass.
-- $1 workflow, $2 different ids, $3 dead heartbeat (ms), $4 grace after the timeout (ms)
WITH judged AS MATERIALIZED (
  SELECT t.{id}::text COLLATE "default" AS record_id, 'requeued' AS outcome, coalesce(c.resets, 0) AS resets,
    c.token, c.trace, w.host || ' ' || w.pid AS worker, {stuck_since} AS since
  FROM unnest($2::text[]) AS g (record_id)
    JOIN {table} AS t ON t.{id} = g.record_id::{id_type}
    LEFT JOIN smart_router.claims AS c ON c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
    LEFT JOIN smart_router.workers AS w ON w.id = c.worker
  WHERE (t.{status} = {requeued_from}{or_waiting}) AND (c.token IS NULL OR {is_lost})
), changed AS (
  UPDATE {table} AS t SET {status} = {queued}{set_error_reset}, {touched} = {now}
  WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM judged))
  RETURNING t.{id}::text COLLATE "default" AS record_id, (t.{status} = {requeued_from}) IS TRUE AS is_kept
), done AS MATERIALIZED (
  SELECT * FROM judged WHERE record_id IN (SELECT record_id FROM changed WHERE NOT is_kept)
), dropped AS (
  DELETE FROM smart_router.claims AS c USING done WHERE c.workflow = $1 AND c.record_id = done.record_id
), noted AS (
  INSERT INTO smart_router.resets (workflow, record_id, token, reason, outcome, resets, stuck_seconds, worker, trace)
  SELECT $1, record_id, token, 'by_hand', outcome, resets, CASE WHEN isfinite(since) THEN extract(epoch FROM now() - since) END, worker, trace
  FROM done
)
SELECT record_id FROM done
