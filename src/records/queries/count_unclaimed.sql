-- Counts rows in Processing without a claim, or held for a person, in a range of blocks.
-- $1 workflow, $2 stuck after (ms), $3 from block, $4 to block
SELECT count(*) AS total,
  max(extract(epoch FROM now() - since)) FILTER (WHERE isfinite(since)) AS oldest_seconds
FROM (
  SELECT coalesce({touched_at}, c.seen_at) AS since, c.held_at
  FROM {rows_and_claims}
  WHERE t.{status} = {processing} AND t.ctid >= $3::tid AND t.ctid < $4::tid AND c.token IS NULL
) AS unclaimed
WHERE held_at IS NOT NULL OR since < now() - $2::bigint * interval '1 ms'
