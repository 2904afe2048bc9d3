-- The slow sweep, one batch: those of $3 that are still in Processing without a claim for longer than $2. Checks the time
-- again on the row as it is when locked: a claim in between has made it younger.
-- $1 workflow, $2 stuck after (ms), $3 ids, $4 the reason to note, or NULL
WITH lost AS MATERIALIZED (
  SELECT t.{id} AS id, t.{id}::text COLLATE "default" AS record_id, coalesce({touched_at}, c.seen_at) AS since,
    coalesce(c.resets, 0) AS resets, true AS counts, c.trace
  FROM {rows_and_claims}
  WHERE t.{id} = ANY ($3::text[]::{id_type}[]) AND (t.{status} = {processing}) IS TRUE
    AND c.token IS NULL AND c.held_at IS NULL
    AND coalesce({touched_at}, c.seen_at) < now() - $2::bigint * interval '1 ms'
  FOR UPDATE OF t SKIP LOCKED
), {judge}, kept AS (
  INSERT INTO smart_router.claims AS c (workflow, record_id, resets, not_before, held_at)
  SELECT $1, record_id, resets + CASE WHEN {is_hold} THEN 0 ELSE 1 END,
    CASE WHEN {is_hold} THEN NULL ELSE now() + {backoff} END, CASE WHEN {is_hold} THEN now() END
  FROM done WHERE outcome <> 'failed'
  ON CONFLICT (workflow, record_id) DO UPDATE SET
    resets = excluded.resets, not_before = excluded.not_before, held_at = excluded.held_at, seen_at = NULL,
    claimed_at = coalesce(c.claimed_at, now()) -- its pause is that of a reset, not of a retry
)
INSERT INTO smart_router.resets (workflow, record_id, reason, outcome, resets, stuck_seconds, trace)
SELECT $1, record_id, coalesce($4::text, 'unclaimed'), outcome, resets, CASE WHEN isfinite(since) THEN extract(epoch FROM now() - since) END, trace
FROM done
RETURNING record_id AS id, reason, outcome, resets, coalesce(stuck_seconds, 0) AS "stuckSeconds", worker, trace
