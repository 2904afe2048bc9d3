-- Part of the claim: the queued records that it takes, in their order. $5 only these ids, or NULL
-- The pause of a record is looked up per row (OFFSET 0), and only if any record pauses at all: with 300,000 pausing
-- records, the whole list was scanned once per record.
  SELECT t.{id} AS id FROM {table} AS t
  WHERE {status} = {queued}
    AND ($5::text[] IS NULL OR t.{id}::text COLLATE "default" = ANY ($5))
    AND {is_due}
  ORDER BY {order}
  LIMIT $2
  FOR UPDATE SKIP LOCKED
