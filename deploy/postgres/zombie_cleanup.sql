-- Requeues stuck rows from inside the database, for installations without a Smart Router process. PostgreSQL 14 or later.
-- Install it, again after an update, with:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f zombie_cleanup.sql
--
-- Guarantees: at most `batch` rows per call, never a row that another transaction has locked, one UPDATE that checks the
-- status again; two calls at once do not reset a row twice. With the schema of the router, rows of live workers and rows
-- held for a person stay unchanged. With the name of the workflow, claims of dead workers become void, and resets count
-- against `max_resets` and are noted in smart_router.resets.
-- It writes only status values that exist: labels of the enum. For a text column all of them must be named, because
-- nothing else says which values the table uses. Columns are named as in SQL.
-- Weakness: without the router's schema only the timestamp says whether a row is still processed, and resets are not
-- counted: set `stuck_after` longer than the longest work.

CREATE SCHEMA IF NOT EXISTS smart_router;

-- Finds a column by its stored name (`State`) or its name in SQL (`"State"`, `state`).
CREATE OR REPLACE FUNCTION smart_router.column_of(target regclass, given text, argument text) RETURNS name
LANGUAGE plpgsql STABLE AS $function$
DECLARE
  found_name name;
  parts text[];
BEGIN
  IF given IS NULL THEN
    RAISE EXCEPTION '% must name a column of %', argument, target;
  END IF;
  BEGIN
    parts := parse_ident(given);
  EXCEPTION WHEN OTHERS THEN
    parts := NULL;
  END;
  SELECT attname INTO found_name FROM pg_attribute
  WHERE attrelid = target AND attnum > 0 AND NOT attisdropped
    AND (attname = given OR (cardinality(parts) = 1 AND attname = parts[1]))
  ORDER BY attname = given DESC
  LIMIT 1;
  IF found_name IS NULL THEN
    RAISE EXCEPTION 'column % does not exist in % (%); the columns are %', given, target, argument,
      (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = target AND attnum > 0 AND NOT attisdropped);
  END IF;
  RETURN found_name;
END
$function$;

-- The arguments are those of a workflow. Returns the rows that were reset, or with `dry_run` would be.
-- `workflow` is the name of the workflow in the router. With the router's schema and without a name, a row is skipped if
-- any workflow has a claim on a record of the same id, of a live worker or not.
-- `processing`, `queued` and `failed` (only needed with `workflow`) are values of the status. Default for an enum:
-- Processing, Queued and Failed; none for a text.
CREATE OR REPLACE FUNCTION smart_router.reset_stuck(
  target regclass,
  status_column name,
  touched_column name DEFAULT 'updated_at',
  error_column name DEFAULT NULL,
  id_column name DEFAULT 'id',
  stuck_after interval DEFAULT '1 hour',
  batch integer DEFAULT 1000,
  workflow text DEFAULT NULL,
  max_resets integer DEFAULT 3,
  dry_run boolean DEFAULT false,
  processing text DEFAULT NULL,
  queued text DEFAULT NULL,
  failed text DEFAULT NULL,
  message text DEFAULT 'Auto-reset from stuck Processing state',
  -- Of a timestamp column without a time zone.
  time_zone text DEFAULT 'UTC',
  -- A row without a timestamp never ages; true: it is stuck.
  null_is_stuck boolean DEFAULT false,
  -- A worker without a heartbeat for this long is dead.
  dead_after interval DEFAULT '2 minutes'
) RETURNS TABLE (record_id text, stuck_for interval, outcome text)
-- The router stores ids in this style.
LANGUAGE plpgsql SET DateStyle TO ISO AS $function$
DECLARE
  has_router boolean := to_regclass('smart_router.claims') IS NOT NULL;
  workflow_id smallint;
  -- Records of dead workers whose claims are not locked.
  dead text[];
  status_type text;
  labels text[];
  wrong text;
  is_used boolean;
  column_type text;
  touched text;
  now_value text;
  old text;
  found_rows text;
  set_error text := '';
  fail_message text := format('Stuck in Processing state after %s resets', max_resets);
BEGIN
  IF batch < 1 OR stuck_after <= interval '0' THEN
    RAISE EXCEPTION 'batch must be at least 1, and stuck_after longer than 0';
  END IF;
  status_column := smart_router.column_of(target, status_column, 'status_column');
  touched_column := smart_router.column_of(target, touched_column, 'touched_column');
  id_column := smart_router.column_of(target, id_column, 'id_column');
  IF error_column IS NOT NULL THEN
    error_column := smart_router.column_of(target, error_column, 'error_column');
  END IF;
  SELECT format_type(atttypid, NULL) INTO column_type FROM pg_attribute
  WHERE attrelid = target AND attname = touched_column;
  IF column_type NOT LIKE 'timestamp%' THEN
    RAISE EXCEPTION 'column % of % (touched_column) must be a timestamp, not %',
      quote_ident(touched_column), target, column_type;
  END IF;
  SELECT format_type(a.atttypid, a.atttypmod),
    (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum AS e
      WHERE e.enumtypid = coalesce(nullif(t.typbasetype, 0), t.oid))
  INTO status_type, labels
  FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
  WHERE a.attrelid = target AND a.attname = status_column;
  IF labels IS NOT NULL THEN
    processing := coalesce(processing, 'Processing');
    queued := coalesce(queued, 'Queued');
    failed := coalesce(failed, 'Failed');
    SELECT string_agg(format('%L (%s)', value, argument), ', ') INTO wrong
    FROM (VALUES (processing, 'processing'), (queued, 'queued'), (failed, 'failed')) AS given (value, argument)
    WHERE value <> ALL (labels) AND (argument <> 'failed' OR workflow IS NOT NULL);
    IF wrong IS NOT NULL THEN
      RAISE EXCEPTION '% is not a value of % in %; the values are %', wrong, quote_ident(status_column), target,
        (SELECT string_agg(quote_literal(label), ', ') FROM unnest(labels) AS label);
    END IF;
  ELSIF processing IS NULL OR queued IS NULL OR (failed IS NULL AND workflow IS NOT NULL) THEN
    RAISE EXCEPTION 'column % of % is not an enum, so its values are unknown: name them all, like %',
      quote_ident(status_column), target,
      $$processing => 'Processing', queued => 'Queued', failed => 'Failed' (failed only with workflow)$$;
  ELSIF dry_run THEN
    -- An empty queue is normal: so this is a notice, not an error.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE %I = %L)', target, status_column, queued) INTO is_used;
    IF NOT is_used THEN
      RAISE NOTICE 'no row of % is %: check that this is the value for queued', target, quote_literal(queued);
    END IF;
  END IF;
  IF processing = queued THEN
    RAISE EXCEPTION 'processing and queued must differ, both are %', quote_literal(queued);
  END IF;
  IF column_type = 'timestamp without time zone' THEN
    touched := format('(t.%I AT TIME ZONE %L)', touched_column, time_zone);
    now_value := format('(now() AT TIME ZONE %L)', time_zone);
  ELSE
    touched := format('t.%I', touched_column);
    now_value := 'now()';
  END IF;
  old := format('(%s < now() - %L::interval', touched, stuck_after)
    || CASE WHEN null_is_stuck THEN format(' OR t.%I IS NULL)', touched_column) ELSE ')' END;
  IF error_column IS NOT NULL THEN
    set_error := format(', %I = CASE found.outcome WHEN ''requeued'' THEN %L ELSE %L END', error_column, message, fail_message);
  END IF;

  IF has_router AND workflow IS NOT NULL THEN
    SELECT w.id INTO workflow_id FROM smart_router.workflows AS w WHERE w.name = workflow;
    IF workflow_id IS NULL THEN
      RAISE EXCEPTION 'unknown workflow %: it is not in smart_router.workflows', workflow;
    END IF;
    -- The locks of the router's own sweeps: one sweep at a time.
    IF NOT pg_try_advisory_xact_lock(hashtext('smart_router.fast_sweep'), workflow_id)
      OR NOT pg_try_advisory_xact_lock(hashtext('smart_router.slow_sweep'), workflow_id) THEN
      RAISE NOTICE 'another sweep of % is running', workflow;
      RETURN;
    END IF;
    -- Claims are locked before rows, as in every finish: the other order could deadlock.
    SELECT array_agg(lost.record_id) INTO dead FROM (
      SELECT c.record_id FROM smart_router.claims AS c LEFT JOIN smart_router.workers AS w ON w.id = c.worker
      WHERE c.workflow = workflow_id AND c.token IS NOT NULL
        AND (w.id IS NULL OR w.heartbeat_at < now() - dead_after)
      ORDER BY c.claimed_at
      LIMIT batch
      FOR UPDATE OF c SKIP LOCKED
    ) AS lost;
  END IF;

  found_rows := format(
    'SELECT t.%I AS id, now() - %s AS stuck_for%s FROM %s AS t%s WHERE t.%I = %L AND %s%s ORDER BY %s NULLS FIRST LIMIT %s%s',
    id_column, touched,
    CASE WHEN workflow_id IS NULL THEN ', ''requeued''::text AS outcome, 0 AS resets'
      ELSE format(', CASE WHEN coalesce(c.resets, 0) >= %s THEN ''failed'' ELSE ''requeued'' END AS outcome, coalesce(c.resets, 0) AS resets', max_resets) END,
    target,
    CASE WHEN workflow_id IS NULL THEN ''
      ELSE format(' LEFT JOIN smart_router.claims AS c ON c.workflow = %s AND c.record_id = t.%I::text', workflow_id, id_column) END,
    status_column, processing, old,
    CASE WHEN workflow_id IS NOT NULL
        THEN ' AND c.held_at IS NULL AND (c.token IS NULL OR c.record_id = ANY($1))'
      WHEN has_router THEN format(
        ' AND NOT EXISTS (SELECT FROM smart_router.claims AS c WHERE c.record_id = t.%I::text'
        ' AND (c.token IS NOT NULL OR c.held_at IS NOT NULL))', id_column)
      ELSE '' END,
    touched, batch, CASE WHEN dry_run THEN '' ELSE ' FOR UPDATE OF t SKIP LOCKED' END);

  IF dry_run THEN
    RETURN QUERY EXECUTE format('SELECT found.id::text, found.stuck_for, found.outcome FROM (%s) AS found', found_rows)
      USING dead;
  ELSIF workflow_id IS NULL THEN
    RETURN QUERY EXECUTE format(
      'WITH found AS MATERIALIZED (%s)'
      ' UPDATE %s AS t SET %I = %L%s, %I = %s FROM found WHERE t.%I = found.id AND t.%I = %L'
      ' RETURNING t.%I::text, found.stuck_for, found.outcome',
      found_rows, target, status_column, queued, set_error, touched_column, now_value,
      id_column, status_column, processing, id_column);
  ELSE
    RETURN QUERY EXECUTE format(
      'WITH found AS MATERIALIZED (%s), changed AS ('
      ' UPDATE %s AS t SET %I = CASE found.outcome WHEN ''requeued'' THEN %L::%s ELSE %L END%s, %I = %s'
      ' FROM found WHERE t.%I = found.id AND t.%I = %L'
      ' RETURNING t.%I::text AS record_id, found.stuck_for, found.outcome, found.resets'
      '), noted AS ('
      ' INSERT INTO smart_router.resets (workflow, record_id, token, reason, outcome, resets, stuck_seconds, worker, trace)'
      ' SELECT %s, n.record_id, c.token, CASE WHEN c.token IS NULL THEN ''unclaimed'' ELSE ''dead_worker'' END,'
      ' n.outcome, n.resets, extract(epoch FROM n.stuck_for), w.host || '' '' || w.pid, c.trace'
      ' FROM changed AS n LEFT JOIN smart_router.claims AS c ON c.workflow = %s AND c.record_id = n.record_id'
      ' LEFT JOIN smart_router.workers AS w ON w.id = c.worker'
      '), kept AS ('
      ' INSERT INTO smart_router.claims AS c (workflow, record_id, resets)'
      ' SELECT %s, n.record_id, n.resets + 1 FROM changed AS n WHERE n.outcome = ''requeued'''
      ' ON CONFLICT (workflow, record_id) DO UPDATE SET token = NULL, worker = NULL, claimed_at = NULL,'
      ' seen_at = NULL, resets = excluded.resets'
      '), dropped AS ('
      ' DELETE FROM smart_router.claims AS c USING changed AS n'
      ' WHERE c.workflow = %s AND c.record_id = n.record_id AND n.outcome = ''failed'''
      ') SELECT n.record_id, n.stuck_for, n.outcome FROM changed AS n',
      found_rows, target, status_column, queued, status_type, failed, set_error, touched_column, now_value,
      id_column, status_column, processing, id_column,
      workflow_id, workflow_id, workflow_id, workflow_id)
      USING dead;
  END IF;
END
$function$;

COMMENT ON FUNCTION smart_router.reset_stuck IS
  'Requeues rows stuck in Processing, at most `batch` of them; with dry_run nothing is changed.';

-- When the trigger below last checked a table.
CREATE TABLE IF NOT EXISTS smart_router.touches (
  target oid PRIMARY KEY,
  at timestamptz NOT NULL
);

-- Requeues stuck rows without a scheduler, on writes to the table: at most once a minute, 100 rows at a time. Optional,
-- and the only thing here that changes a team's table: trigger.sql.
--
-- Arguments: status= (required), touched=, error=, id=, after=, workflow=, processing=, queued=, failed=, as for
-- reset_stuck. Its errors are warnings: they never fail the write. Weakness: it runs only on writes, and the rows it
-- resets stay locked until the writer commits.
CREATE OR REPLACE FUNCTION smart_router.reset_on_touch() RETURNS trigger
LANGUAGE plpgsql AS $function$
DECLARE
  options jsonb;
BEGIN
  -- Our own UPDATE fires it again, and one transaction at a time is enough.
  IF pg_trigger_depth() > 1
    OR NOT pg_try_advisory_xact_lock(hashtext('smart_router.touch'), (TG_RELID::bigint & 2147483647)::integer) THEN
    RETURN NULL;
  END IF;
  BEGIN
    INSERT INTO smart_router.touches AS last (target, at) VALUES (TG_RELID, now())
    ON CONFLICT (target) DO UPDATE SET at = now() WHERE last.at < now() - interval '1 minute';
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
    SELECT jsonb_object_agg(split_part(given, '=', 1), substr(given, strpos(given, '=') + 1)) INTO options
    FROM unnest(TG_ARGV) AS given;
    PERFORM smart_router.reset_stuck(
      TG_RELID::regclass, (options ->> 'status')::name,
      touched_column => coalesce(options ->> 'touched', 'updated_at')::name,
      error_column => (options ->> 'error')::name,
      id_column => coalesce(options ->> 'id', 'id')::name,
      stuck_after => coalesce(options ->> 'after', '1 hour')::interval,
      workflow => options ->> 'workflow',
      processing => options ->> 'processing',
      queued => options ->> 'queued',
      failed => options ->> 'failed',
      batch => 100);
  EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'stuck records of % not checked: %', TG_RELID::regclass, SQLERRM;
  END;
  RETURN NULL;
END
$function$;
