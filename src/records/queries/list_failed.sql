-- Failed records, the newest first.
-- $1 how many
SELECT t.{id}::text COLLATE "default" AS record_id, {error_text} AS error,
  CASE WHEN isfinite({touched_at}) THEN extract(epoch FROM now() - {touched_at}) END AS failed_seconds
FROM {table} AS t
WHERE t.{status} = {failed}
ORDER BY t.{touched} DESC NULLS LAST
LIMIT $1
