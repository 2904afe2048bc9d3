-- The same without an index on the key, for a key of any type, or for the ids $5: reads all queued rows.
  WITH places AS MATERIALIZED (
    SELECT {hash_of_given} AS hash, greatest(0, {limit_max} - count(c.token)) AS free
    FROM unnest($6::text[]) AS given (key)
      LEFT JOIN smart_router.claims AS c ON c.workflow = $1 AND c.limit_key = {hash_of_given} AND c.token IS NOT NULL
    GROUP BY 1
  ), ranked AS MATERIALIZED (
    SELECT queued.id, queued.hash, queued.rank, queued.place
    FROM (
      SELECT t.{id} AS id, {hash_of_row} AS hash, row_number() OVER (ORDER BY {order}) AS place,
        row_number() OVER (PARTITION BY {hash_of_row} ORDER BY {order}) AS rank
      FROM {table} AS t
      WHERE t.{status} = {queued} AND ($5::text[] IS NULL OR t.{id}::text COLLATE "default" = ANY ($5)) AND {is_due}
    ) AS queued LEFT JOIN places ON places.hash = queued.hash
    WHERE queued.rank <= CASE WHEN queued.hash IS NULL THEN $2 ELSE coalesce(places.free, 0) END
    ORDER BY queued.rank, queued.place
    LIMIT 2 * $2
  ), locked AS MATERIALIZED (
    SELECT t.{id} AS id, {hash_of_row} AS hash FROM {table} AS t
    WHERE t.{id} = ANY(ARRAY(SELECT id FROM ranked)) AND t.{status} = {queued}
    FOR UPDATE OF t SKIP LOCKED
  )
  -- A row whose key has changed since the snapshot is left to the next claim.
  SELECT id FROM (
    SELECT locked.id, row_number() OVER (PARTITION BY ranked.hash IS NULL ORDER BY ranked.rank, ranked.place) AS turn,
      ranked.hash IS NOT NULL AS has_key
    -- FULL and CASE: no nested loop, as in finish.sql.
    FROM ranked FULL JOIN locked ON locked.id = ranked.id
    WHERE CASE WHEN locked.id IS NULL THEN false ELSE ranked.hash IS NOT DISTINCT FROM locked.hash END
  ) AS both_kinds
  ORDER BY turn, has_key = $7::boolean
  LIMIT $2
