-- Failed records, the newest first; then queued ones that wait for their retry, the next first.
-- $1 workflow, $2 how many
SELECT * FROM (
  (
    SELECT t.{id}::text COLLATE "default" AS id, {error_text} AS error,
      CASE WHEN isfinite({touched_at}) THEN extract(epoch FROM now() - {touched_at})::float8 END AS "failedSeconds",
      NULL::float8 AS "retrySeconds"
    FROM {table} AS t
    WHERE t.{status} = {failed}
    ORDER BY t.{touched} DESC NULLS LAST
    LIMIT $2
  )
  UNION ALL
  (
    SELECT t.{id}::text COLLATE "default", {error_text},
      CASE WHEN isfinite({touched_at}) THEN extract(epoch FROM now() - {touched_at})::float8 END,
      extract(epoch FROM c.not_before - now())::float8
    FROM smart_router.claims AS c JOIN {table} AS t ON t.{id} = c.record_id::{id_type} AND t.{status} = {queued}
    WHERE c.workflow = $1 AND {is_waiting}
    ORDER BY c.not_before
    LIMIT $2
  )
) AS found
ORDER BY "retrySeconds" NULLS FIRST, "failedSeconds"
LIMIT $2
