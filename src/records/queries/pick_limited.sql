-- Part of the claim of a workflow with a limit: records of the keys $6, which this transaction has locked, and records
-- without a key. Counts the claims of each key in the snapshot of this statement, which is younger than the locks: no
-- other worker can have claimed a record of these keys since. Both kinds of records take turns; $7: those without a key
-- begin.
-- Needs an index on the key and the order: reads as many rows as it takes.
  WITH places AS MATERIALIZED (
    SELECT given.key, given.place, greatest(0, {limit_max} - count(c.token)) AS free
    FROM unnest($6::text[]) WITH ORDINALITY AS given (key, place)
      LEFT JOIN smart_router.claims AS c ON c.workflow = $1 AND c.limit_key = {hash_of_given} AND c.token IS NOT NULL
    GROUP BY given.key, given.place
  ), keyed AS MATERIALIZED (
    SELECT found.id, found.rank, places.place
    FROM places CROSS JOIN LATERAL (
      SELECT first.id, row_number() OVER () AS rank FROM (
        SELECT t.{id} AS id FROM {table} AS t
        WHERE t.{status} = {queued} AND t.{key} = places.key::{key_type} AND $5::text[] IS NULL AND {is_due}
        ORDER BY {order}
        LIMIT least(places.free, ceil($2::integer / greatest(1, cardinality($6::text[]))::numeric))
        FOR UPDATE OF t SKIP LOCKED
      ) AS first
    ) AS found
  ), unlimited AS MATERIALIZED (
    SELECT t.{id} AS id FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} IS NULL AND {is_due}
    ORDER BY {order}
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
  )
  SELECT id FROM (
    SELECT id, row_number() OVER (ORDER BY rank, place) AS turn, true AS has_key FROM keyed
    UNION ALL
    SELECT id, row_number() OVER (), false FROM unlimited
  ) AS both_kinds
  ORDER BY turn, has_key = $7::boolean
  LIMIT $2
