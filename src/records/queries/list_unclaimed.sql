-- Ids of the rows that the slow sweep recovers. Locks nothing.
-- $1 workflow, $2 how many, $3 stuck after (ms), $4 how many to skip: rows that another transaction has locked; for a
-- range of blocks also $5 from, $6 to
SELECT t.{id}::text COLLATE "default" AS record_id
FROM {rows_and_claims}
WHERE t.{status} = {processing}{range}
  AND ({touched_at} < now() - $3::bigint * interval '1 ms' OR t.{touched} IS NULL)
  AND c.token IS NULL AND c.held_at IS NULL
  AND coalesce({touched_at}, c.seen_at) < now() - $3::bigint * interval '1 ms'
LIMIT $2 OFFSET $4
