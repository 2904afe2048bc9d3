-- Part of lock_limited.sql, with an index on the key and the order. Jumps from key to key in the index, and stops at the
-- last key that is locked (a recursive query is evaluated as far as its rows are needed): the number of queued rows does
-- not matter.
later AS (
  (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} > $4::text::{key_type} AND {is_due}
    ORDER BY t.{key} LIMIT 1
  )
  UNION ALL
  SELECT next.key FROM later CROSS JOIN LATERAL (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} > later.key AND {is_due}
    ORDER BY t.{key} LIMIT 1
  ) AS next
), earlier AS (
  (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} IS NOT NULL AND ($4::text IS NULL OR t.{key} <= $4::text::{key_type}) AND {is_due}
    ORDER BY t.{key} LIMIT 1
  )
  UNION ALL
  SELECT next.key FROM earlier CROSS JOIN LATERAL (
    SELECT t.{key} AS key FROM {table} AS t
    WHERE t.{status} = {queued} AND t.{key} > earlier.key AND ($4::text IS NULL OR t.{key} <= $4::text::{key_type}) AND {is_due}
    ORDER BY t.{key} LIMIT 1
  ) AS next
), keys AS (
  SELECT key, {hash_of_key} AS hash FROM (
    SELECT key::text FROM later
    UNION ALL
    SELECT key::text FROM earlier
  ) AS waiting
), keyed AS MATERIALIZED (
  SELECT found.id, locked.hash, found.rank, locked.turn
  FROM locked CROSS JOIN LATERAL (
    SELECT first.id, row_number() OVER () AS rank FROM (
      SELECT t.{id} AS id FROM {table} AS t
      WHERE t.{status} = {queued} AND t.{key} = locked.key::{key_type} AND {is_due}
      ORDER BY {order}
      LIMIT least(locked.free, (SELECT records FROM share))
      FOR UPDATE OF t SKIP LOCKED
    ) AS first
  ) AS found
)
