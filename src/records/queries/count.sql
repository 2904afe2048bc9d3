-- Rows by status. Counts up to a million each: an index on the status answers that in a fraction of a second, at any size
-- of the table; without one the table is read. The oldest age only of queued rows: the advised index answers that too.
SELECT state.status::text AS status,
  (SELECT count(*) FROM (SELECT FROM {table} AS t WHERE t.{status} = state.status LIMIT 1000000) AS counted) AS records,
  CASE WHEN state.status = {queued} THEN
    extract(epoch FROM now() - (SELECT CASE WHEN isfinite({oldest}) THEN {oldest} END FROM {table} AS t WHERE t.{status} = {queued}))
  END AS oldest_seconds
FROM (VALUES ({queued}), ({processing}), ({failed})) AS state (status)
