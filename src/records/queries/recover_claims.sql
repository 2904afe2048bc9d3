-- The fast sweep, one batch: claims of dead workers, and claims older than their timeout and $4. Skips rows that another
-- transaction has locked. All conditions are checked again on the locked rows. A join would not find the worker of a new owner
-- there, so workers are read by subqueries.
-- Rows are found again by `= ANY`, never by a join: a planner that expects one row joins by nested loops, and one that
-- expects many reads the whole table.
-- $1 workflow, $2 how many, $3 a heartbeat older than this (ms) is dead, or NULL: heartbeats do not count, $4 grace after
-- the timeout (ms), $5 only these ids, or NULL, $6 how many to skip: those that were locked before, $7 the reason to
-- note, or NULL: the one found
-- `looked_at` of every row: how many were considered. There is always at least one row.
WITH dead AS MATERIALIZED (
  SELECT c.record_id FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.token IS NOT NULL AND ($5::text[] IS NULL OR c.record_id = ANY ($5))
    AND {is_lost}
  ORDER BY c.claimed_at
  -- More than needed, because some may be locked.
  LIMIT 10 * $2 OFFSET $6
), lost AS MATERIALIZED (
  SELECT t.{id} AS id, c.record_id, c.token, c.resets, {counts} AS counts, c.trace, c.claimed_at AS since,
    (SELECT w.host || ' ' || w.pid FROM smart_router.workers AS w WHERE w.id = c.worker) AS worker,
    {reason} AS reason
  FROM smart_router.claims AS c
    JOIN {table} AS t ON t.{id} = c.record_id::{id_type} AND t.{status} = {processing}
  WHERE c.workflow = $1 AND c.record_id = ANY (ARRAY(SELECT record_id FROM dead))
    AND c.token IS NOT NULL AND c.claimed_at < now() AND {is_lost}
  ORDER BY c.claimed_at
  LIMIT $2
  FOR UPDATE OF c, t SKIP LOCKED
), {judge}, kept AS (
  UPDATE smart_router.claims AS c SET token = NULL, worker = NULL, limit_key = NULL,
    resets = resets + CASE WHEN {is_hold} OR NOT {counts} THEN 0 ELSE 1 END,
    not_before = CASE WHEN {is_hold} THEN NULL ELSE now() + {backoff} END,
    held_at = CASE WHEN {is_hold} THEN now() END
  WHERE c.workflow = $1 AND c.record_id = ANY (ARRAY(SELECT record_id FROM done WHERE outcome <> 'failed'))
), noted AS (
  INSERT INTO smart_router.resets (workflow, record_id, token, reason, outcome, resets, stuck_seconds, worker, trace)
  SELECT $1, record_id, token, coalesce($7::text, reason), outcome, resets, extract(epoch FROM now() - since), worker, trace
  FROM done
  RETURNING record_id AS id, reason, outcome, resets, coalesce(stuck_seconds, 0) AS "stuckSeconds", worker, trace
)
SELECT noted.*, looked_at::int FROM (SELECT count(*) AS looked_at FROM dead) AS seen LEFT JOIN noted ON true
