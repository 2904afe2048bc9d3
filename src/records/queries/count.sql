-- Rows by state, for the numbers. Each is counted up to a million and no further: an index on the status answers that
-- in a fraction of a second, however large the table. Without one the table is read.
SELECT state.status::text AS status,
  (SELECT count(*) FROM (SELECT FROM {table} AS t WHERE t.{status} = state.status LIMIT 1000000) AS counted) AS records,
  extract(epoch FROM now() - (SELECT CASE WHEN isfinite({oldest}) THEN {oldest} END FROM {table} AS t WHERE t.{status} = state.status)) AS oldest_seconds
FROM (VALUES ({queued}), ({processing}), ({failed})) AS state (status)
