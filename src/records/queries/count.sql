-- Rows by state, for the numbers. Each is counted up to a million and no further: an index on the status answers that
-- in a fraction of a second, however large the table. Without one the table is read. Only of what is queued the oldest
-- is asked for: the advised index answers that too.
SELECT state.status::text AS status,
  (SELECT count(*) FROM (SELECT FROM {table} AS t WHERE t.{status} = state.status LIMIT 1000000) AS counted) AS records,
  CASE WHEN state.status = {queued} THEN
    extract(epoch FROM now() - (SELECT CASE WHEN isfinite({oldest}) THEN {oldest} END FROM {table} AS t WHERE t.{status} = {queued}))
  END AS oldest_seconds
FROM (VALUES ({queued}), ({processing}), ({failed})) AS state (status)
