-- Ids of the rows that the slow sweep recovers. Locks nothing. Claims are looked up per row (OFFSET 0): a join would read
-- all claims for every range of blocks.
-- $1 workflow, $2 how many, $3 stuck after (ms), $4 how many to skip: rows that another transaction has locked; for a
-- range of blocks also $5 from, $6 to
SELECT t.{id}::text COLLATE "default" AS record_id
FROM {table} AS t LEFT JOIN LATERAL (
  SELECT c.token, c.held_at, c.seen_at FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND c.record_id = t.{id}::text COLLATE "default"
  OFFSET 0
) AS c ON true
WHERE t.{status} = {processing}{range}
  AND ({touched_at} < now() - $3::bigint * interval '1 ms' OR t.{touched} IS NULL)
  AND c.token IS NULL AND c.held_at IS NULL
  AND coalesce({touched_at}, c.seen_at) < now() - $3::bigint * interval '1 ms'
LIMIT $2 OFFSET $4
