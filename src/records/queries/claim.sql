-- Claims up to $2 queued records for worker $3: marks and claims them in one statement, in their order.
-- $1 workflow, $2 how many, $3 worker, $4 timeout in ms, the rest as in {pick}: pick.sql, or with a limit per key
-- pick_limited.sql.
-- Rows are found again by `= ANY`, not by a join: a planner that expects one row joins by nested loops, and one that expects
-- many reads the whole table. The FULL JOIN at the end can only become a hash or merge join.
WITH picked AS MATERIALIZED (
{pick}
), numbered AS MATERIALIZED (
  SELECT id, row_number() OVER () AS place FROM picked
), fresh AS MATERIALIZED (
  SELECT nextval('smart_router.tokens') AS token
), marked AS (
  UPDATE {table} AS t SET {status} = {processing}, {touched} = {now}
  WHERE t.{id} = ANY(ARRAY(SELECT id FROM picked))
  RETURNING t.{id}::text COLLATE "default" AS "smart_router.id", t.*
), again AS (
  -- Records that were reset or failed keep their row, and with it their counts.
  UPDATE smart_router.claims AS c SET token = fresh.token, worker = $3::integer, claimed_at = now(),
    timeout_ms = $4::integer, not_before = NULL, seen_at = NULL, held_at = NULL, trace = NULL{set_limit_key}
  FROM fresh
  WHERE c.workflow = $1 AND c.record_id = ANY(ARRAY(SELECT "smart_router.id" FROM marked))
  RETURNING c.record_id, c.resets, c.begun
), claimed AS (
  -- No ON CONFLICT: it costs 48 bytes of WAL per record, and the row locks above make a conflict nearly impossible
  -- (23505: the claim is retried).
  INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms{limit_column})
  SELECT $1, "smart_router.id", fresh.token, $3::integer, now(), $4::integer{limit_value} FROM marked, fresh
  WHERE "smart_router.id" NOT IN (SELECT record_id FROM again)
)
-- A trigger may have restored or changed the status without an error: then the whole claim fails.
-- NULL instead of false: the driver does not read it.
SELECT CASE WHEN (marked.{status} = {processing}) IS TRUE THEN fresh.token ELSE
    ('smart_router: the claim left the status at ' || coalesce(quote_literal(marked.{status}::text), {queued}::text))::bigint
  END AS "smart_router.token",
  CASE WHEN "smart_router.id" IN (SELECT record_id FROM again WHERE resets > 0) THEN true END AS "smart_router.is_back",
  CASE WHEN "smart_router.id" IN (SELECT record_id FROM again WHERE begun IS NOT NULL) THEN true END AS "smart_router.is_suspect",
  marked.*
FROM fresh, numbered FULL JOIN marked ON marked.{id} = numbered.id
ORDER BY numbered.place
