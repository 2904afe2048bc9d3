/**
 * A workflow's table as the database knows it: does everything exist that the definition names, and how are the
 * queries spelt for it. Read once at start; a table that is missing a column is refused by name, never half used.
 */
import { ConfigError, plainText } from '../errors.js';
import { quoteName, quoteText } from './identifiers.js';
import { missingRights, writeObstacles } from './permissions.js';
import { queries } from './queries.generated.js';
import { isSessionFault, type Queryable } from './sessions.js';
import type { Workflow } from './workflow.js';

/**
 * `listUnclaimedBlocks` and `sightUntimedBlocks` look at a range of blocks; `holdClaims` and `holdUnclaimed` leave records
 * as they are, for a person; `holdClaimLast` is hold_claim with the strong lock; `forgetByText` reads the whole table,
 * for claims whose id cannot be one of it.
 */
export type QueryName =
  | keyof typeof queries
  | 'listUnclaimedBlocks'
  | 'sightUntimedBlocks'
  | 'forgetByText'
  | 'holdClaims'
  | 'holdUnclaimed'
  | 'holdClaimLast';

export interface Table {
  /** Quoted, as the definition has it: for people. */
  readonly name: string;
  /** Quoted, with its schema: what it means does not depend on the search path. */
  readonly path: string;
  /** The number of the workflow in our schema. */
  readonly workflowId: number;
  readonly queries: Readonly<Record<QueryName, string>>;
  /** Longest message that the error column takes. */
  readonly longestError: number;
  /** Rows in Processing are found by an index; without one the slow sweep reads the table block by block. */
  readonly isIndexed: boolean;
  /** A plain table, without others that inherit from it: its blocks can be looked at one after the other. */
  readonly hasBlocks: boolean;
  /** Rows may be without a time. */
  readonly hasUntimed: boolean;
  /** What would make it faster or safer, as SQL or as a sentence; nothing of it is done by us. */
  readonly advice: readonly string[];
  /** Whoever only looks needs none of them. */
  readonly missingRights: readonly string[];
}

interface Column {
  name: string;
  type: string;
  /** With its schema, unless it is PostgreSQL's own. */
  type_path: string;
  /** `S`: a text of some kind. */
  category: string;
  is_required: boolean;
  is_unique: boolean;
  leads_index: boolean;
  /** The conditions of partial indexes that speak of this column. */
  index_conditions: string[];
  labels: string[] | null;
}

const longestMessage = 1024;

export async function openTable(db: Queryable, workflow: Workflow): Promise<Table> {
  const name = quoteName(workflow.table);
  const problems: string[] = [];
  const problem = (text: string) => problems.push(`workflow ${workflow.name}: ${text}`);
  const { rows: tables } = await db.query<{
    oid: string;
    path: string;
    kind: string;
    has_children: boolean;
  }>(
    `SELECT oid::text AS oid, relnamespace::regnamespace::text || '.' || quote_ident(relname) AS path,
       relkind AS kind, relhassubclass AS has_children FROM pg_class WHERE oid = to_regclass($1)`,
    [name],
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
  if (id && !(id.is_unique && id.is_required))
    problem(
      `column ${quoteName([id.name])} (id) must be unique and NOT NULL: a primary key, or a unique index on a column that is never empty`,
    );
  if (touched && !touched.type.startsWith('timestamp'))
    problem(`column ${quoteName([touched.name])} (touchedAt) must be a timestamp, it is ${touched.type}`);
  if (touched && !touched.type.includes('with time zone') && !(await knowsZone(db, workflow.timeZone)))
    problem(`the database knows no time zone ${quoteText(workflow.timeZone)} (timeZone)`);
  if (error && error.category !== 'S')
    problem(`column ${quoteName([error.name])} (error) must be a text, it is ${error.type}`);
  if (status) for (const text of await wrongValues(db, status, workflow)) problem(text);
  if (problems.length > 0 || !id || !status || !touched) throw new ConfigError(problems);

  const { queued, processing } = workflow.status;
  const { rows: ids } = await db.query<{ id: number }>(
    `WITH new AS (INSERT INTO smart_router.workflows (name) SELECT $1
       WHERE NOT EXISTS (SELECT FROM smart_router.workflows WHERE name = $1) ON CONFLICT DO NOTHING RETURNING id)
     SELECT id FROM new UNION ALL SELECT id FROM smart_router.workflows WHERE name = $1`,
    [workflow.name],
  );
  return {
    name,
    path: table.path,
    workflowId: ids[0]?.id ?? (await workflowId(db, workflow.name)),
    queries: spell(workflow, table.path, { id, status, touched, error }),
    longestError: longestOf(error),
    isIndexed: isFoundByIndex(status, processing),
    hasBlocks: table.kind === 'r' && !table.has_children,
    hasUntimed: !touched.is_required,
    missingRights: await missingRights(
      db,
      { oid: table.oid, name },
      [status, touched, ...(error ? [error] : [])].map((column) => column.name),
    ),
    advice: isFoundByIndex(status, queued)
      ? []
      : [
          `no index finds what is ${quoteText(queued)}: every claim reads the table; CREATE INDEX${table.kind === 'r' ? ' CONCURRENTLY' : ''} ON ${name} (${workflow.order.map(({ column }) => quoteName([column])).join(', ')}) WHERE ${quoteName([status.name])} = ${quoteText(queued)}`,
        ],
  };
}

/**
 * By an index that begins with the status, or a partial one for this status; one with more conditions, or with one that
 * is turned round, is not for us.
 */
function isFoundByIndex(status: Column, value: string): boolean {
  const isForIt = (condition: string) =>
    condition.includes(quoteText(value)) &&
    / = /.test(condition) &&
    !/ AND |\bNOT\b| OR | IS |<>/.test(condition);
  return status.leads_index || status.index_conditions.some(isForIt);
}

/** Somebody else was faster by a moment. */
async function workflowId(db: Queryable, name: string): Promise<number> {
  const { rows } = await db.query<{ id: number }>('SELECT id FROM smart_router.workflows WHERE name = $1', [
    name,
  ]);
  if (!rows[0]) throw new Error(`workflow ${name} vanished from smart_router.workflows`);
  return rows[0].id;
}

async function knowsZone(db: Queryable, zone: string): Promise<boolean> {
  return db.query('SELECT now() AT TIME ZONE $1', [zone]).then(() => true, refused);
}

/** The database says no; one that says nothing has not refused anything. */
function refused(error: unknown): false {
  if (isSessionFault(error)) throw error;
  return false;
}

/** Values that the column cannot hold as they are: no label of the enum, too long, not of its type. */
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
        `${quoteText(value)} (status.${option}) is no value of ${status.type}${status.labels ? `: it has ${status.labels.map(quoteText).join(', ')}` : ''}`,
      );
  }
  return wrong;
}

async function readColumns(db: Queryable, oid: string): Promise<Map<string, Column>> {
  const { rows } = await db.query<Column>(
    `SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       CASE WHEN t.typnamespace <> 'pg_catalog'::regnamespace AND pg_type_is_visible(t.oid)
         THEN t.typnamespace::regnamespace::text || '.' ELSE '' END || format_type(a.atttypid, a.atttypmod) AS type_path,
       t.typcategory AS category,
       a.attnotnull AS is_required,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
         AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum) AS is_unique,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indpred IS NULL
         AND i.indkey[0] = a.attnum) AS leads_index,
       ARRAY(SELECT pg_get_expr(i.indpred, i.indrelid) FROM pg_index i
         WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indpred IS NOT NULL
           AND EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
             AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum)) AS index_conditions,
       CASE t.typtype WHEN 'e' THEN ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder) END AS labels
     FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`,
    [oid],
  );
  return new Map(rows.map((column) => [column.name, column]));
}

/** Longest message that the column takes. */
function longestOf(error: Column | undefined): number {
  const declared = /\((\d+)\)$/.exec(error?.type ?? '')?.[1];
  return Math.min(longestMessage, Number(declared ?? longestMessage));
}

/** At most `longest` characters as PostgreSQL counts them (code points), and only those that it accepts. */
export function cut(message: string, longest: number): string {
  const text = plainText(message);
  if (text.length <= longest) return text;
  const points = [...text];
  return points.length <= longest ? text : `${points.slice(0, longest - 1).join('')}…`;
}

interface Columns {
  id: Column;
  status: Column;
  touched: Column;
  error: Column | undefined;
}

/** The queries with this table's names in the places that are marked by braces. */
function spell(workflow: Workflow, table: string, columns: Columns): Record<QueryName, string> {
  const { id, status, touched, error } = columns;
  const { policy, maxResets } = workflow.stuck;
  const isZoned = touched.type.includes('with time zone');
  const zone = quoteText(workflow.timeZone);
  // Never cast to varchar(n), which would cut it.
  const value = (text: string) =>
    `${quoteText(text)}::${status.category === 'S' ? 'text' : status.type_path}`;
  const touchedName = quoteName([touched.name]);
  const setError = (expression: string) => (error ? `, ${quoteName([error.name])} = ${expression}` : '');
  const noError = error?.is_required ? "''" : 'NULL';
  const message = (text: string) => quoteText(cut(text, longestOf(error)));
  const resetMessage = message('Auto-reset from stuck Processing state');
  const failMessage = message(
    policy === 'fail' ? 'Stuck in Processing state' : `Stuck in Processing state after ${maxResets} resets`,
  );
  const isFailed = `t.${quoteName([id.name])} = ANY(ARRAY(SELECT id FROM judged WHERE outcome = 'failed'))`;
  const places: Record<string, string> = {
    table,
    id: quoteName([id.name]),
    id_type: id.type_path,
    status: quoteName([status.name]),
    queued: value(workflow.status.queued),
    processing: value(workflow.status.processing),
    completed: value(workflow.status.completed),
    failed: value(workflow.status.failed),
    touched: touchedName,
    touched_at: isZoned ? `t.${touchedName}` : `(t.${touchedName} AT TIME ZONE ${zone})`,
    oldest: isZoned ? `min(t.${touchedName})` : `(min(t.${touchedName}) AT TIME ZONE ${zone})`,
    now: isZoned ? 'now()' : `(now() AT TIME ZONE ${zone})`,
    // With its table: an `id` that is not the id would otherwise be taken for ours.
    order: workflow.order.map(({ column, rest }) => `t.${quoteName([column])}${rest}`).join(', '),
    set_error_finish: setError(`coalesce($4::jsonb ->> t.${quoteName([id.name])}::text, ${noError})`),
    set_no_error: setError(noError),
    error_text: error ? `left(t.${quoteName([error.name])}::text, 1000)` : 'NULL::text',
    is_failed: isFailed,
    set_error_reset: setError(`CASE WHEN ${isFailed} THEN ${failMessage} ELSE ${resetMessage} END`),
    verdict:
      policy === 'requeue'
        ? `CASE WHEN resets >= ${maxResets} AND counts THEN 'failed' ELSE 'requeued' END`
        : quoteText(policy === 'fail' ? 'failed' : 'held'),
    // Of a claim `c`: whether its reset is held against the record. Whatever a dead worker held comes back, and only one
    // of them killed it: after the first time, those whose handler had not begun are innocent.
    counts: '((c.resets = 0 OR c.begun = c.token) IS TRUE)',
    // The first reset costs no wait; a record that keeps killing its workers comes ever more rarely, at most hourly.
    backoff:
      "CASE WHEN resets = 0 THEN interval '0' ELSE least(10 * power(2, least(resets - 1, 20)), 3600) * interval '1 s' END",
    // Of a claim `c`: past its timeout and $4, or its worker has not been heard of for $3, if that is to be judged.
    is_timed_out: "c.claimed_at + (c.timeout_ms + $4::bigint) * interval '1 ms' < now()",
    is_lost: `(c.claimed_at + (c.timeout_ms + $4::bigint) * interval '1 ms' < now() OR ($3::bigint IS NOT NULL AND NOT EXISTS (
      SELECT FROM smart_router.workers AS w WHERE w.id = c.worker AND w.heartbeat_at >= now() - $3::bigint * interval '1 ms'
    )))`,
    is_hold: String(policy === 'hold'),
    is_same: `t.${quoteName([id.name])} = c.record_id::${id.type_path}`,
    range: '',
    lock: 'KEY SHARE',
  };
  const fill = (sql: string, more: Record<string, string> = {}) =>
    sql.replace(/\{(\w+)\}/g, (_, place: string) => {
      const text = more[place] ?? places[place];
      if (text === undefined) throw new Error(`no place {${place}} in the queries`);
      return text;
    });
  const hold = { verdict: "'held'", is_hold: 'true' };
  const spelt = Object.fromEntries(Object.entries(queries).map(([key, sql]) => [key, fill(sql)]));
  return {
    ...(spelt as Record<keyof typeof queries, string>),
    listUnclaimedBlocks: fill(queries.listUnclaimed, {
      range: ' AND t.ctid >= $5::tid AND t.ctid < $6::tid',
    }),
    sightUntimedBlocks: fill(queries.sightUntimed, { range: ' AND t.ctid >= $3::tid AND t.ctid < $4::tid' }),
    forgetByText: fill(queries.forget, {
      is_same: `t.${quoteName([id.name])}::text COLLATE "default" = c.record_id`,
    }),
    holdClaimLast: fill(queries.holdClaim, { lock: 'UPDATE' }),
    holdClaims: fill(queries.recoverClaims, hold),
    holdUnclaimed: fill(queries.recoverUnclaimed, hold),
  };
}
