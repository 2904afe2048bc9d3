-- The state of records that an operator names, in the order given, and whether a live worker holds them. Several spellings of
-- one id (7 and 07) are one record, with the table's spelling.
-- $1 workflow, $2 ids, $3 dead heartbeat (ms), $4 grace after the timeout (ms)
SELECT g.record_id AS id, coalesce(c.resets, 0) AS resets, c.trace, w.host || ' ' || w.pid AS worker,
  t.{id} IS NOT NULL AS exists,
  coalesce(t.{status} = {processing}, false) AS "isProcessing",
  coalesce(t.{status} = {failed} OR (t.{status} = {queued} AND {is_waiting}), false) AS "isFailed",
  c.token IS NOT NULL AND NOT {is_lost} AS "isLive",
  CASE WHEN t.{status} = {processing} AND isfinite({stuck_since}) THEN extract(epoch FROM now() - {stuck_since})::float8 END AS "stuckSeconds"
FROM (
    SELECT coalesce(t.{id}::text COLLATE "default", given.record_id) AS record_id, min(given.place) AS place
    FROM unnest($2::text[]) WITH ORDINALITY AS given (record_id, place) LEFT JOIN {table} AS t ON t.{id} = given.record_id::{id_type}
    GROUP BY 1
  ) AS g
  LEFT JOIN {table} AS t ON t.{id} = g.record_id::{id_type}
  LEFT JOIN smart_router.claims AS c ON c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
  LEFT JOIN smart_router.workers AS w ON w.id = c.worker
ORDER BY g.place
