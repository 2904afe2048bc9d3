-- The slow sweep, one batch: those of $3 that are still in Processing without a claim for longer than $2. Checks the time
-- again on the row as it is when locked: a claim in between has made it younger. Claims are looked up per row (OFFSET 0):
-- a join would read all claims for every batch.
-- $1 workflow, $2 stuck after (ms), $3 ids, $4 the reason to note, or NULL
WITH stuck AS MATERIALIZED (
  SELECT t.{id} AS id, coalesce({touched_at}, c.seen_at) AS since, coalesce(c.resets, 0) AS resets, true AS counts, c.trace
  FROM {table} AS t LEFT JOIN LATERAL (
    SELECT c.token, c.held_at, c.seen_at, c.resets, c.trace FROM smart_router.claims AS c
    WHERE c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
    OFFSET 0
  ) AS c ON true
  WHERE t.{id} = ANY ($3::text[]::{id_type}[]) AND (t.{status} = {processing}) IS TRUE
    AND c.token IS NULL AND c.held_at IS NULL
    AND coalesce({touched_at}, c.seen_at) < now() - $2::bigint * interval '1 ms'
  FOR UPDATE OF t SKIP LOCKED
), judged AS MATERIALIZED (
  SELECT *, {verdict} AS outcome FROM stuck
), changed AS (
  UPDATE {table} AS t
  SET {status} = CASE WHEN {is_failed} THEN {failed} ELSE {queued} END{set_error_reset}, {touched} = {now}
  WHERE t.{id} = ANY (ARRAY(SELECT id FROM judged WHERE outcome <> 'held')) AND (t.{status} = {processing}) IS TRUE
  RETURNING t.{id} AS id, (t.{status} = {processing}) IS TRUE AS is_kept
), done AS MATERIALIZED (
  -- A trigger may have kept a row unchanged without an error.
  SELECT * FROM judged WHERE outcome = 'held' OR id IN (SELECT id FROM changed WHERE NOT is_kept)
), kept AS (
  INSERT INTO smart_router.claims AS c (workflow, record_id, resets, not_before, held_at)
  SELECT $1, id::text, resets + CASE WHEN {is_hold} THEN 0 ELSE 1 END,
    CASE WHEN {is_hold} THEN NULL ELSE now() + {backoff} END, CASE WHEN {is_hold} THEN now() END
  FROM done WHERE outcome <> 'failed'
  ON CONFLICT (workflow, record_id) DO UPDATE SET
    resets = excluded.resets, not_before = excluded.not_before, held_at = excluded.held_at, seen_at = NULL
), dropped AS (
  DELETE FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.record_id = ANY (ARRAY(SELECT id::text COLLATE "default" FROM done WHERE outcome = 'failed'))
)
INSERT INTO smart_router.resets (workflow, record_id, reason, outcome, resets, stuck_seconds, trace)
SELECT $1, id::text, coalesce($4::text, 'unclaimed'), outcome, resets, CASE WHEN isfinite(since) THEN extract(epoch FROM now() - since) END, trace
FROM done
RETURNING record_id AS id, reason, outcome, resets, coalesce(stuck_seconds, 0) AS "stuckSeconds", worker, trace
