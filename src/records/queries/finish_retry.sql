-- finish.sql for a workflow with `retry`: a record that failed, and has attempts left, goes back to Queued. Its row in
-- our table keeps the count and the time before which it is not claimed. If its status is no longer Processing, another
-- program has changed it: then nothing is written, and no pause stays behind.
-- $1 workflow, $2 ids, $3 their tokens (`idsAndTokens`), $4 the error of each id that failed (JSON)
WITH {unlocked}final AS MATERIALIZED (
  DELETE FROM smart_router.claims AS c
  WHERE {is_bounded} AND c.workflow = $1 AND c.record_id = ANY({finished_ids}) AND {has_token}
    AND NOT {is_retried}
  RETURNING c.record_id
), failing AS MATERIALIZED (
  SELECT c.record_id FROM smart_router.claims AS c
  WHERE {is_bounded} AND c.workflow = $1 AND c.record_id = ANY({finished_ids}) AND {has_token}
    AND {is_retried}
  FOR UPDATE OF c
), held AS MATERIALIZED (
  SELECT record_id FROM final UNION ALL SELECT record_id FROM failing
), written AS (
  UPDATE {table} AS t
  SET {status} = CASE WHEN t.{id}::text COLLATE "default" IN (SELECT record_id FROM failing) THEN {queued}
    WHEN {has_errors} AND $4::jsonb ? t.{id}::text COLLATE "default" THEN {failed} ELSE {completed} END{set_error_finish}, {touched} = {now}
  WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
  RETURNING t.{id} AS id, t.{id}::text COLLATE "default" IN (SELECT record_id FROM failing) AS is_retried,
    t.{status} = {processing} OR (t.{status} = {queued}
      AND t.{id}::text COLLATE "default" NOT IN (SELECT record_id FROM failing)) AS is_kept
), queued_again AS (
  UPDATE smart_router.claims AS c SET token = NULL, worker = NULL, claimed_at = NULL, limit_key = NULL, retried = c.token,
    attempts = coalesce(c.attempts, 0) + 1, not_before = now() + {retry_delay}
  WHERE c.workflow = $1 AND c.record_id = ANY(ARRAY(SELECT {written_id} FROM written WHERE is_retried AND NOT is_kept))
), dropped AS (
  DELETE FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.record_id = ANY(ARRAY(
    SELECT record_id FROM failing WHERE record_id NOT IN (SELECT {written_id} FROM written WHERE NOT is_kept)))
)
{finished},
  (SELECT json_agg({written_id}) FROM written WHERE is_retried AND NOT is_kept)::text AS retried
FROM (SELECT count(*) = cardinality($2::text[]) AS is_whole FROM written WHERE NOT is_kept) AS total
