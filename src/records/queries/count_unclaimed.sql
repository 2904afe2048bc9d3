-- Counts rows in Processing without a claim, or held for a person, in a range of blocks. Claims are looked up per row
-- (OFFSET 0): a join would read all claims for every range.
-- $1 workflow, $2 stuck after (ms), $3 from block, $4 to block
SELECT count(*) AS total,
  max(extract(epoch FROM now() - since)) FILTER (WHERE isfinite(since)) AS oldest_seconds
FROM (
  SELECT coalesce({touched_at}, c.seen_at) AS since, c.held_at
  FROM {table} AS t LEFT JOIN LATERAL (
    SELECT c.token, c.held_at, c.seen_at FROM smart_router.claims AS c
    WHERE c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
    OFFSET 0
  ) AS c ON true
  WHERE t.{status} = {processing} AND t.ctid >= $3::tid AND t.ctid < $4::tid AND c.token IS NULL
) AS unclaimed
WHERE held_at IS NOT NULL OR since < now() - $2::bigint * interval '1 ms'
