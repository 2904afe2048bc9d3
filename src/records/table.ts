/**
 * Checks a workflow's definition against the catalogue of the database, and writes the queries for its table. Runs at
 * start, and when its columns may have changed; a table that lacks a column is rejected by name.
 */
import { ConfigError, plainText } from '../errors.js';
import { type Column, coversStatus, readColumns } from './columns.js';
import { quoteName, quoteText } from './identifiers.js';
import { hasPlainType, keyIndex, limitPlaces, limitQueries } from './limits.js';
import { missingRights, writeObstacles } from './permissions.js';
import { queries } from './queries.generated.js';
import { isSessionFault, type Queryable } from './sessions.js';
import { defaultBounds, type Workflow } from './workflow.js';

export type QueryName = keyof ReturnType<typeof writeQueries>;

export interface Table {
  /** Quoted, as in the definition: for messages. */
  readonly name: string;
  /** Quoted, with its schema: independent of the search path. */
  readonly path: string;
  /** The number of the workflow in our schema. */
  readonly workflowId: number;
  readonly queries: Readonly<Record<QueryName, string>>;
  /** With a limit per key: whether an index finds the keys. */
  readonly limit: { readonly isIndexed: boolean } | undefined;
  readonly hasRetry: boolean;
  /** Maximum length of a message in the error column. */
  readonly maxErrorLength: number;
  /** An index finds rows in Processing; without one the slow sweep reads the table by ranges of blocks. */
  readonly isIndexed: boolean;
  /** A plain table without children: it can be read by ranges of blocks. */
  readonly hasBlocks: boolean;
  /** The timestamp may be NULL. */
  readonly hasUntimed: boolean;
  /** What would make it faster, as SQL or as a sentence. Never applied by us. */
  readonly advice: readonly string[];
  /** Needed to process records, not to inspect them. */
  readonly missingRights: readonly string[];
  /** Reads the same table again; throws a ConfigError if it no longer fits. */
  reread(db: Queryable): Promise<Table>;
}

const maxMessageLength = 1024;

/** Opens all tables before it throws, so that a ConfigError has the problems of every workflow. */
export async function openTables(db: Queryable, workflows: readonly Workflow[]): Promise<Table[]> {
  const problems: string[] = [];
  const tables: Table[] = [];
  for (const workflow of workflows) {
    try {
      const table = await openTable(db, workflow);
      problems.push(...table.missingRights.map((text) => `workflow ${workflow.name}: ${text}`));
      tables.push(table);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      problems.push(...error.problems);
    }
  }
  if (problems.length > 0) throw new ConfigError(problems);
  return tables;
}

/** `path`: of the table to read again; default: what the search path finds. */
export async function openTable(db: Queryable, workflow: Workflow, path?: string): Promise<Table> {
  const name = quoteName(workflow.table);
  const problems: string[] = [];
  const problem = (text: string) => problems.push(`workflow ${workflow.name}: ${text}`);
  const { rows: tables } = await db.query<{ oid: string; path: string; kind: string; has_children: boolean }>(
    `SELECT oid::text AS oid, relnamespace::regnamespace::text || '.' || quote_ident(relname) AS path,
       relkind AS kind, relhassubclass AS has_children FROM pg_class WHERE oid = to_regclass($1)`,
    [path ?? name],
  );
  const table = tables[0];
  if (!table) throw new ConfigError([`workflow ${workflow.name}: table ${name} does not exist`]);
  if (!['r', 'p'].includes(table.kind)) problem(`${name} must be a table`);
  for (const text of await writeObstacles(db, table.oid, name, workflow)) problem(text);
  const columns = await readColumns(db, table.oid);
  const find = (column: string, option: string): Column | undefined => {
    const found = columns.get(column);
    if (!found) problem(`column ${quoteName([column])} (${option}) does not exist in ${name}`);
    return found;
  };
  const id = find(workflow.id, 'id');
  const status = find(workflow.status.column, 'status.column');
  const touched = find(workflow.touchedAt, 'touchedAt');
  const error = workflow.error === undefined ? undefined : find(workflow.error, 'error');
  for (const { column } of workflow.order) if (column !== workflow.touchedAt) find(column, 'orderBy');
  const key = workflow.limit && find(workflow.limit.key, 'limit.key');
  if (id && !(id.is_unique && id.is_required))
    problem(
      `column ${quoteName([id.name])} (id) must be unique and NOT NULL: a primary key, or a unique index on a NOT NULL column`,
    );
  if (id?.category === 'A')
    problem(`column ${quoteName([id.name])} (id) must not be an array: ${id.type} is not supported`);
  if (touched && !touched.type.startsWith('timestamp'))
    problem(`column ${quoteName([touched.name])} (touchedAt) must be a timestamp, not ${touched.type}`);
  if (touched && !touched.type.includes('with time zone') && !(await knowsZone(db, workflow.timeZone)))
    problem(`the time zone ${quoteText(workflow.timeZone)} (timeZone) is unknown to the database`);
  if (error && error.category !== 'S')
    problem(`column ${quoteName([error.name])} (error) must be a text, not ${error.type}`);
  if (status) for (const text of await wrongValues(db, status, workflow)) problem(text);
  problems.push(...(await nameConflicts(db, { [workflow.name]: table.path })));
  if (problems.length > 0 || !id || !status || !touched) throw new ConfigError(problems);

  const found = { id, status, touched, error, key };
  const { queued, processing } = workflow.status;
  const isQuick = key ? await keyIndex(db, table.oid, workflow, key) : hasIndexFor(status, queued);
  return {
    name,
    path: table.path,
    workflowId: await workflowId(db, workflow.name),
    queries: writeQueries(workflow, table.path, found),
    limit: key && { isIndexed: isQuick },
    hasRetry: workflow.retry !== undefined,
    maxErrorLength: maxLengthOf(error),
    isIndexed: hasIndexFor(status, processing),
    hasBlocks: table.kind === 'r' && !table.has_children,
    hasUntimed: !touched.is_required,
    reread: (again) => openTable(again, workflow, table.path),
    missingRights: await missingRights(
      db,
      { oid: table.oid, name },
      [status, touched, ...(error ? [error] : [])].map((column) => column.name),
    ),
    advice: isQuick ? [] : [indexAdvice(workflow, name, table.kind === 'r', found)],
  };
}

/**
 * Returns a line for each workflow whose name a live worker uses for another table. Paths are compared, not oids: a worker
 * writes to the table that has its path now, so a table that was renamed or replaced is free.
 */
export async function nameConflicts(
  db: Queryable,
  paths: Readonly<Record<string, string>>,
): Promise<string[]> {
  const { rows } = await db.query<{ workflow: string; path: string; worker: string }>(
    `SELECT DISTINCT ON (given.key) given.key AS workflow, w.tables ->> given.key AS path, w.host || ', pid ' || w.pid AS worker
     FROM jsonb_each_text($1::jsonb) AS given
       JOIN smart_router.workers AS w ON w.tables ->> given.key <> given.value
         AND w.heartbeat_at > now() - $2::bigint * interval '1 ms'
     WHERE EXISTS (SELECT FROM pg_class
       WHERE relnamespace::regnamespace::text || '.' || quote_ident(relname) = w.tables ->> given.key)
     ORDER BY given.key`,
    [JSON.stringify(paths), defaultBounds.deadAfterMs],
  );
  return rows.map(
    ({ workflow, path, worker }) =>
      `workflow ${workflow}: a live worker (${worker}) processes the table ${path} under this name, not ${paths[workflow]}; use another name, or stop that worker first`,
  );
}

/** An index that begins with the status, or a partial one with only the condition that the status has this value. */
function hasIndexFor(status: Column, value: string): boolean {
  return status.leads_index || status.index_conditions.some((condition) => coversStatus(condition, value));
}

/** The index that claims need; with a limit it begins with the key, unless the type of the key makes that useless. */
function indexAdvice(workflow: Workflow, name: string, isPlain: boolean, { status: column, key }: Columns) {
  const { status, order } = workflow;
  const isUseless = key !== undefined && !hasPlainType(key);
  if (isUseless && hasIndexFor(column, status.queued))
    return `equal values of ${quoteName([key.name])} (limit.key, ${key.type}) can have different texts (1.0 and 1.00, or acme and ACME), so claims cannot use an index on it: every claim reads all queued rows`;
  const limit = isUseless ? undefined : workflow.limit;
  const columns = [...(limit ? [{ column: limit.key }] : []), ...order];
  const list = columns.map(({ column }) => quoteName([column])).join(', ');
  const queued = quoteText(status.queued);
  const problem = limit
    ? `no index finds rows in ${queued} by ${quoteName([limit.key])} (limit.key): every claim reads all queued rows`
    : `no index finds rows in ${queued}: every claim reads the whole table`;
  // Rows that were inserted together have the same time. Deduplicated, the entries of a key are one, which is read in full
  // by every claim until the last of its rows is claimed.
  const storage = limit ? ' WITH (deduplicate_items = off)' : '';
  return `${problem}; CREATE INDEX${isPlain ? ' CONCURRENTLY' : ''} ON ${name} (${list})${storage} WHERE ${quoteName([status.column])} = ${queued}`;
}

async function workflowId(db: Queryable, name: string): Promise<number> {
  await db.query(
    `INSERT INTO smart_router.workflows (name) SELECT $1
       WHERE NOT EXISTS (SELECT FROM smart_router.workflows WHERE name = $1) ON CONFLICT DO NOTHING`,
    [name],
  );
  const { rows } = await db.query<{ id: number }>('SELECT id FROM smart_router.workflows WHERE name = $1', [
    name,
  ]);
  if (!rows[0]) throw new Error(`workflow ${name} was deleted from smart_router.workflows`);
  return rows[0].id;
}

async function knowsZone(db: Queryable, zone: string): Promise<boolean> {
  return db.query('SELECT now() AT TIME ZONE $1', [zone]).then(() => true, refused);
}

/** A reply with an error is a no; a missing reply is not. */
function refused(error: unknown): false {
  if (isSessionFault(error)) throw error;
  return false;
}

/** Returns a line for each status value that the column cannot hold: not a label of the enum, too long, of another type. */
async function wrongValues(db: Queryable, status: Column, workflow: Workflow): Promise<string[]> {
  const { column, ...values } = workflow.status;
  const wrong: string[] = [];
  for (const [option, value] of Object.entries(values)) {
    const fits = status.labels
      ? status.labels.includes(value)
      : await db
          .query<{ fits: boolean }>(`SELECT ($1::text)::${status.type}::text = $1 AS fits`, [value])
          .then(({ rows }) => rows[0]?.fits === true, refused);
    if (!fits)
      wrong.push(
        `${quoteText(value)} (status.${option}) is not a value of ${status.type}${status.labels ? `: the values are ${status.labels.map(quoteText).join(', ')}` : ''}`,
      );
  }
  return wrong;
}

/** Maximum length of a message in this column. */
function maxLengthOf(error: Column | undefined): number {
  const declared = /\((\d+)\)$/.exec(error?.type ?? '')?.[1];
  return Math.min(maxMessageLength, Number(declared ?? maxMessageLength));
}

/** Cuts a message to code points, as PostgreSQL counts them, and removes characters that it rejects. */
export function truncate(message: string, maxLength: number): string {
  const text = plainText(message);
  if (text.length <= maxLength) return text;
  const points = [...text];
  return points.length <= maxLength ? text : `${points.slice(0, maxLength - 1).join('')}…`;
}

interface Columns {
  id: Column;
  status: Column;
  touched: Column;
  error: Column | undefined;
  key: Column | undefined;
}

/**
 * Returns the queries with the names of this table in the places marked by braces, and their variants: `...Blocks` read a
 * range of blocks; `holdClaims` and `holdUnclaimed` keep records for a person; `holdClaimLast` takes the strong lock;
 * `forgetByText` reads the whole table, for ids that are not of the id's type.
 */
function writeQueries(workflow: Workflow, table: string, columns: Columns) {
  const { id, status, touched, error } = columns;
  const idName = quoteName([id.name]);
  const { policy, maxResets } = workflow.stuck;
  const isZoned = touched.type.includes('with time zone');
  const zone = quoteText(workflow.timeZone);
  // Never cast to varchar(n), which would truncate the value.
  const value = (text: string) =>
    `${quoteText(text)}::${status.category === 'S' ? 'text' : status.base_type}`;
  const touchedName = quoteName([touched.name]);
  const setError = (expression: string) => (error ? `, ${quoteName([error.name])} = ${expression}` : '');
  const noError = error?.is_required ? "''" : 'NULL';
  const message = (text: string) => quoteText(truncate(text, maxLengthOf(error)));
  const resetMessage = message('Auto-reset from stuck Processing state');
  const failMessage = message(
    policy === 'fail' ? 'Stuck in Processing state' : `Stuck in Processing state after ${maxResets} resets`,
  );
  const isFailed = `t.${idName} = ANY(ARRAY(SELECT id FROM judged WHERE outcome = 'failed'))`;
  const processing = value(workflow.status.processing);
  const touchedAt = isZoned ? `t.${touchedName}` : `(t.${touchedName} AT TIME ZONE ${zone})`;
  // Known when the statement is planned: a batch without errors then costs no lookup per record.
  const hasErrors = "$4::jsonb <> '{}'";
  const writtenId = 'id::text COLLATE "default"';
  // The token of claim `c` is the one given in $3 (`idsAndTokens`).
  const hasToken = 'c.token = coalesce(($3::jsonb -> 1 ->> c.record_id)::bigint, ($3::jsonb ->> 0)::bigint)';
  const isTimedOut = "c.claimed_at + (c.timeout_ms + $4::bigint) * interval '1 ms' < now()";
  const places: Record<string, string> = {
    table,
    id: idName,
    id_type: id.base_type,
    status: quoteName([status.name]),
    queued: value(workflow.status.queued),
    processing,
    completed: value(workflow.status.completed),
    failed: value(workflow.status.failed),
    touched: touchedName,
    touched_at: touchedAt,
    oldest: isZoned ? `min(t.${touchedName})` : `(min(t.${touchedName}) AT TIME ZONE ${zone})`,
    now: isZoned ? 'now()' : `(now() AT TIME ZONE ${zone})`,
    // With its table: a column `id` that is not the id column would otherwise be ambiguous.
    order: workflow.order.map(({ column, rest }) => `t.${quoteName([column])}${rest}`).join(', '),
    set_error_finish: setError(
      `coalesce(CASE WHEN ${hasErrors} THEN $4::jsonb ->> t.${idName}::text END, ${noError})`,
    ),
    has_errors: hasErrors,
    is_bounded: "(SELECT set_config('lock_timeout', '2000', true)) IS NOT NULL",
    ...{ has_token: hasToken, written_id: writtenId },
    finished: `SELECT is_whole,
  CASE WHEN NOT is_whole THEN (SELECT json_agg(${writtenId}) FROM written WHERE NOT is_kept) END::text AS written,
  CASE WHEN NOT is_whole THEN (SELECT json_agg(${writtenId}) FROM written WHERE is_kept) END::text AS restored,
  CASE WHEN NOT is_whole THEN (
    SELECT json_agg(record_id) FROM held WHERE record_id NOT IN (SELECT ${writtenId} FROM written WHERE is_kept IS NOT NULL)
  ) END::text AS unchanged`,
    set_error_queued: setError('$2::text'),
    error_text: error ? `left(t.${quoteName([error.name])}::text, 1000)` : 'NULL::text',
    is_failed: isFailed,
    set_error_reset: setError(`CASE WHEN ${isFailed} THEN ${failMessage} ELSE ${resetMessage} END`),
    verdict:
      policy === 'requeue'
        ? `CASE WHEN resets >= ${maxResets} AND counts THEN 'failed' ELSE 'requeued' END`
        : quoteText(policy === 'fail' ? 'failed' : 'held'),
    // Whether a reset of claim `c` counts against the record. All records of a dead worker are requeued, and only one of
    // them killed it: from the second reset on, only those whose handler had started count.
    counts: '((c.resets = 0 OR c.begun = c.token) IS TRUE)',
    // No pause after the first reset; then it doubles, up to an hour, for a record that keeps killing its workers.
    backoff:
      "CASE WHEN resets = 0 THEN interval '0' ELSE least(10 * power(2, least(resets - 1, 20)), 3600) * interval '1 s' END",
    // Why the lost claim `c` is recovered.
    reason: `CASE WHEN c.worker IS NULL THEN 'given_up' WHEN ${isTimedOut} THEN 'timed_out' ELSE 'dead_worker' END`,
    // Claim `c` is older than its timeout and $4, or its worker has had no heartbeat for $3 (NULL: heartbeats do not count).
    is_lost: `(${isTimedOut} OR ($3::bigint IS NOT NULL AND NOT EXISTS (
      SELECT FROM smart_router.workers AS w WHERE w.id = c.worker AND w.heartbeat_at >= now() - $3::bigint * interval '1 ms'
    )))`,
    is_hold: String(policy === 'hold'),
    // Claims are looked up per row (OFFSET 0): a join would read all claims for every batch and every range of blocks.
    rows_and_claims: `${table} AS t LEFT JOIN LATERAL (
    SELECT c.token, c.held_at, c.seen_at, c.resets, c.trace FROM smart_router.claims AS c
    WHERE c.workflow = $1 AND c.record_id = t.${idName}::text COLLATE "default"
    OFFSET 0
  ) AS c ON true`,
    is_same: `t.${idName} = c.record_id::${id.base_type}`,
    ...{ range: '', lock: 'KEY SHARE', unlocked: '' },
    finished_ids: 'ARRAY(SELECT unnest($2::text[]))',
    released: `c.record_id = ANY(ARRAY(SELECT unnest($2::text[]))) AND ${hasToken}`,
    renewed: 'claimed_at = now()',
    requeued_from: processing,
    ...{ set_limit_key: '', limit_column: '', limit_value: '', pick: '', judge: '', or_waiting: '' },
    keys_and_rows: '',
    is_chosen: `($8::text[] IS NULL OR t.${idName}::text COLLATE "default" = ANY ($8))`,
    has_retry: String(workflow.retry !== undefined),
    // A claim that was recovered keeps claimed_at: its pause is that of a reset.
    is_waiting: '(c.not_before > now() AND c.attempts > 0 AND c.claimed_at IS NULL)',
    failed_before: `CASE WHEN isfinite(${touchedAt}) AND ${touchedAt} <= now() THEN ${touchedAt} <= now() - $3 * interval '1 ms' ELSE t.${idName}::text COLLATE "default" NOT IN (SELECT record_id FROM requeued) END`,
    is_retried: `($4::jsonb ? c.record_id AND coalesce(c.attempts, 0) < ${workflow.retry?.max ?? 0})`,
    // 80 to 100 % of the pause: records that failed together do not return together.
    retry_delay: `least(${workflow.retry?.backoffMs ?? 0} * power(2, least(coalesce(c.attempts, 0), 30)), ${workflow.retry?.maxBackoffMs ?? 0}) * (0.8 + 0.2 * random()) * interval '1 ms'`,
    is_due: `(
      NOT (SELECT EXISTS (SELECT FROM smart_router.claims WHERE workflow = $1 AND not_before > now()))
      OR NOT EXISTS (
        SELECT FROM smart_router.claims AS c
        WHERE c.workflow = $1 AND c.record_id = t.${idName}::text COLLATE "default" AND c.not_before > now()
        OFFSET 0
      )
    )`,
    ...limitPlaces(workflow, columns.key),
    stuck_since: `CASE WHEN c.token IS NULL THEN coalesce(${touchedAt}, c.seen_at) ELSE c.claimed_at END`,
  };
  const fill = (sql: string, more: Record<string, string> = {}) =>
    sql.replace(/\{(\w+)\}/g, (_, place: string) => {
      const text = more[place] ?? places[place];
      if (text === undefined) throw new Error(`no place {${place}} in the queries`);
      return text;
    });
  const held = { verdict: "'held'", is_hold: 'true' };
  const hold = { ...held, judge: fill(queries.judge, held) };
  const blocks = (first: number) => ({
    range: ` AND t.ctid >= $${first}::tid AND t.ctid < $${first + 1}::tid`,
  });
  places.pick = fill(queries.pick);
  places.judge = fill(queries.judge);
  const unlocked = {
    unlocked: `unlocked AS MATERIALIZED (
  SELECT t.${idName} AS id FROM ${table} AS t
  WHERE t.${idName} = ANY ($2::text[]::${id.base_type}[]) AND (t.${quoteName([status.name])} = ${processing}) IS TRUE
  FOR UPDATE SKIP LOCKED
), `,
    finished_ids: 'ARRAY(SELECT id::text COLLATE "default" FROM unlocked)',
  };
  const filled = Object.fromEntries(Object.entries(queries).map(([key, sql]) => [key, fill(sql)]));
  return {
    ...(filled as Record<keyof typeof queries, string>),
    finishUnlocked: fill(queries.finish, unlocked),
    finishRetryUnlocked: fill(queries.finishRetry, unlocked),
    ...limitQueries(fill, columns.key),
    releaseUnknown: fill(queries.release, {
      released: 'c.worker = $2::integer AND c.token > $3::bigint AND c.token <> ALL ($4::bigint[])',
    }),
    begin: fill(queries.renew, { renewed: 'claimed_at = now(), begun = c.token' }),
    giveUp: fill(queries.renew, { renewed: 'worker = NULL' }),
    // It fails no record.
    requeueByHand: fill(queries.requeueByHand, { set_error_reset: setError(resetMessage) }),
    retryByHand: fill(queries.requeueByHand, {
      requeued_from: value(workflow.status.failed),
      or_waiting: ` OR (t.${quoteName([status.name])} = ${value(workflow.status.queued)} AND ${places.is_waiting})`,
      set_error_reset: setError(noError),
      stuck_since: 'NULL::timestamptz',
    }),
    listUnclaimedBlocks: fill(queries.listUnclaimed, blocks(5)),
    markUntimedBlocks: fill(queries.markUntimed, blocks(3)),
    forgetByText: fill(queries.forget, { is_same: `t.${idName}::text COLLATE "default" = c.record_id` }),
    holdClaimLast: fill(queries.holdClaim, { lock: 'UPDATE' }),
    holdClaims: fill(queries.recoverClaims, hold),
    holdUnclaimed: fill(queries.recoverUnclaimed, hold),
  };
}
