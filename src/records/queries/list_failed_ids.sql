-- Records that had failed when the caller started, the oldest first; not those that failed again since.
-- $1 how many, $2 how long ago the caller started (ms), $3 ids to leave out
SELECT t.{id}::text COLLATE "default" AS record_id
FROM {table} AS t
WHERE t.{status} = {failed}
  AND ({touched_at} IS NULL OR NOT isfinite({touched_at}) OR {touched_at} <= now() - $2 * interval '1 ms')
  AND t.{id}::text COLLATE "default" <> ALL ($3::text[])
ORDER BY t.{touched} NULLS FIRST
LIMIT $1
