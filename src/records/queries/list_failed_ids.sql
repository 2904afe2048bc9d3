-- Records that had failed when the caller started, the oldest first, also those that wait for their retry; not those that
-- failed again since. If the time of a row is NULL, infinite or in the future, a requeue by hand since the start shows that.
-- $1 workflow, $2 how many, $3 how long ago the caller started (ms), $4 ids to leave out
WITH requeued AS MATERIALIZED (
  SELECT record_id FROM smart_router.resets
  -- A second earlier: this statement can be late.
  WHERE workflow = $1 AND reason = 'by_hand' AND at >= now() - $3 * interval '1 ms' - interval '1 s'
)
SELECT record_id FROM (
  (
    SELECT t.{id}::text COLLATE "default" AS record_id, {touched_at} AS since
    FROM {table} AS t
    WHERE t.{status} = {failed} AND {failed_before} AND t.{id}::text COLLATE "default" <> ALL ($4::text[])
    ORDER BY t.{touched} NULLS FIRST
    LIMIT $2
  )
  UNION ALL
  (
    SELECT c.record_id, {touched_at}
    FROM smart_router.claims AS c JOIN {table} AS t ON t.{id} = c.record_id::{id_type} AND t.{status} = {queued}
    WHERE c.workflow = $1 AND {is_waiting} AND {failed_before} AND c.record_id <> ALL ($4::text[])
    ORDER BY c.not_before
    LIMIT $2
  )
) AS found
ORDER BY since NULLS FIRST
LIMIT $2
