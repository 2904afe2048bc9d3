-- Part of the claim of a workflow with a limit: of the rows $5, which lock_limited.sql has locked, those for which their key
-- has a place, with the hash of the key. $6 the hash of each row's key, or NULL.
-- Counts the claims of each key in the snapshot of this statement, which is younger than the locks: no other worker can
-- have claimed a record of these keys since.
  WITH locked AS MATERIALIZED (
    SELECT id, hash, place, row_number() OVER (PARTITION BY hash ORDER BY place) AS rank
    FROM unnest($5::text[], $6::bigint[]) WITH ORDINALITY AS given (id, hash, place)
  ), places AS MATERIALIZED (
    SELECT keys.hash, {free_places} AS free FROM (SELECT DISTINCT hash FROM locked WHERE hash IS NOT NULL) AS keys
  )
  SELECT locked.id::{id_type} AS id, locked.hash
  -- FULL JOIN: no nested loop, as in claim.sql. CASE: a plain condition would make it an inner join.
  FROM locked FULL JOIN places ON places.hash = locked.hash
  WHERE CASE WHEN locked.hash IS NULL THEN true ELSE locked.rank <= places.free END
  ORDER BY locked.place
  LIMIT $2
