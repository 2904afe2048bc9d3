-- Records that had failed when the caller started, the oldest first, also those that wait for their retry; not those that
-- failed again since.
-- $1 how many, $2 how long ago the caller started (ms), $3 ids to leave out, $4 workflow
SELECT record_id FROM (
  (
    SELECT t.{id}::text COLLATE "default" AS record_id, {touched_at} AS since
    FROM {table} AS t
    WHERE t.{status} = {failed} AND {failed_before} AND t.{id}::text COLLATE "default" <> ALL ($3::text[])
    ORDER BY t.{touched} NULLS FIRST
    LIMIT $1
  )
  UNION ALL
  (
    SELECT c.record_id, {touched_at}
    FROM smart_router.claims AS c JOIN {table} AS t ON t.{id} = c.record_id::{id_type} AND t.{status} = {queued}
    WHERE c.workflow = $4 AND {is_waiting} AND {failed_before} AND c.record_id <> ALL ($3::text[])
    ORDER BY c.not_before
    LIMIT $1
  )
) AS found
ORDER BY since NULLS FIRST
LIMIT $1
