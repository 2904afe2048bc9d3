-- Failed records, the newest first.
-- $1 how many
SELECT t.{id}::text COLLATE "default" AS id, {error_text} AS error,
  CASE WHEN isfinite({touched_at}) THEN extract(epoch FROM now() - {touched_at})::float8 END AS "failedSeconds"
FROM {table} AS t
WHERE t.{status} = {failed}
ORDER BY t.{touched} DESC NULLS LAST
LIMIT $1
