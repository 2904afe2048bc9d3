-- Part of lock_limited.sql, without an index on the key, for a key of any type, or for the ids $8: reads all queued rows.
waiting AS MATERIALIZED (
  SELECT t.{id} AS id, t.{key}::text COLLATE "C" AS key, row_number() OVER (ORDER BY {order}) AS place,
    row_number() OVER (PARTITION BY t.{key}::text COLLATE "C" ORDER BY {order}) AS rank
  FROM {table} AS t
  WHERE t.{status} = {queued} AND t.{key} IS NOT NULL AND {is_chosen} AND {is_due}
), keys AS MATERIALIZED (
  SELECT key, {hash_of_key} AS hash FROM waiting GROUP BY key ORDER BY coalesce(key <= $4::text, false), key
), chosen AS MATERIALIZED (
  SELECT waiting.id, waiting.rank, waiting.place
  -- FULL JOIN: no nested loop, as in claim.sql. CASE: a plain condition would make it an inner join.
  FROM waiting FULL JOIN locked ON locked.key = waiting.key
  WHERE CASE WHEN locked.key IS NULL THEN false ELSE waiting.rank <= least(locked.free, (SELECT records FROM share)) END
), found AS MATERIALIZED (
  -- A row whose key has changed since the snapshot may have one that is not locked: it is left to the next claim.
  SELECT t.{id} AS id, t.{key}::text COLLATE "C" AS key FROM {table} AS t
  WHERE t.{id} = ANY(ARRAY(SELECT id FROM chosen)) AND t.{status} = {queued}
    AND CASE WHEN t.{key}::text COLLATE "C" IN (SELECT key FROM locked) THEN true ELSE false END
  FOR UPDATE OF t SKIP LOCKED
), keyed AS MATERIALIZED (
  SELECT found.id, {hash_of_found} AS hash, chosen.rank, chosen.place AS turn
  FROM chosen FULL JOIN found ON found.id = chosen.id
  WHERE CASE WHEN found.id IS NULL THEN false ELSE true END
)
