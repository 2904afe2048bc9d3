-- Writes outcomes whose token still holds. Returns one row: `is_whole`, whether all were written; if not, three JSON lists:
-- `written`; `restored`, a trigger restored the status; `unchanged`, the row was not changed. Ids in none of them came too late.
-- The lists are made only if needed: for every record they would cost a microsecond.
-- Waits at most 2 s for rows that another transaction has locked, regardless of the database's own timeout. The variant
-- for batches with locked rows writes only the unlocked ones, without a wait.
-- The number of ids is hidden from the planner ({finished_ids}): if it sees 500, it reads all claims of the workflow by a bitmap
-- scan, with those deleted since the last vacuum. With statistics of a nearly empty table it reads them all by an index scan.
-- $1 workflow, $2 ids, $3 their tokens (`idsAndTokens`), $4 the error of each id that failed (JSON)
WITH {unlocked}held AS MATERIALIZED (
  DELETE FROM smart_router.claims AS c
  WHERE {is_bounded} AND c.workflow = $1 AND c.record_id = ANY({finished_ids}) AND {has_token}
  RETURNING c.record_id
), written AS (
  UPDATE {table} AS t
  SET {status} = CASE WHEN {has_errors} AND $4::jsonb ? t.{id}::text COLLATE "default" THEN {failed} ELSE {completed} END{set_error_finish}, {touched} = {now}
  -- In this form the status is checked without using an index on it.
  WHERE t.{id} = ANY(ARRAY(SELECT record_id::{id_type} FROM held)) AND (t.{status} = {processing}) IS TRUE
  RETURNING t.{id} AS id, (t.{status} = {queued} OR t.{status} = {processing}) AS is_kept
)
{finished}
FROM (SELECT count(*) = cardinality($2::text[]) AS is_whole FROM written WHERE NOT is_kept) AS total
