/**
 * Explains, in one line, why a database cannot be used: it is unreachable, or the role lacks a right. Then the line has
 * the GRANT, to be run by the owner of the table or of the schema.
 */
import { AppError, ConfigError, messageOf } from '../errors.js';
import { codeOf, isSessionFault, type Queryable, SessionError } from './sessions.js';
import type { Workflow } from './workflow.js';

/** Every right that a role needs in the schema smart_router. */
export const schemaGrants = {
  schema: 'GRANT USAGE ON SCHEMA smart_router TO <role>',
  table: 'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA smart_router TO <role>',
  sequence: 'GRANT USAGE ON ALL SEQUENCES IN SCHEMA smart_router TO <role>',
};
const schemaTables =
  /^(claims|installation|late_finishes|migrations|reports|resets|touches|workers|workflows)$/;

/** Runs what opens a database, and turns its refusals into a ConfigError and its outages into a SessionError. */
export async function explainDatabaseErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ConfigError || error instanceof AppError) throw error;
    const grant = grantFor(error);
    if (grant !== undefined) throw new ConfigError([`${messageOf(error)}: ${grant}`]);
    throw isSessionFault(error) ? new SessionError(unusable(error)) : error;
  }
}

/** An unusable database becomes `database_unavailable`, an invalid id `invalid_request`; other errors stay as they are. */
export function toAppError(error: unknown): unknown {
  if (error instanceof AppError || error instanceof ConfigError) return error;
  const code = codeOf(error);
  if (code.startsWith('22'))
    return new AppError('invalid_request', `not an id of this table: ${messageOf(error)}`);
  // 28: wrong password, 3D: no such database, 42501: no right to it.
  if (!isSessionFault(error) && !/^(28|3D)|^42501$/.test(code)) return error;
  const grant = grantFor(error);
  const message = `${unusable(error)}${grant === undefined ? '' : `: ${grant}`}`;
  return new AppError('database_unavailable', message, { retryAfterSeconds: 5, cause: error });
}

const unusable = (error: unknown) =>
  `cannot use the database: ${messageOf(error).replace(/^(cannot use the database|no session): /, '')}`;

/** Returns the GRANT for an error 42501; undefined for any other error. */
function grantFor(error: unknown): string | undefined {
  if (codeOf(error) !== '42501') return undefined;
  const [, kind, name = ''] =
    /permission denied for (schema|table|sequence) (\S+)/.exec(messageOf(error)) ?? [];
  if (kind === 'schema')
    return name === 'smart_router' ? schemaGrants.schema : `GRANT USAGE ON SCHEMA ${name} TO <role>`;
  if (kind === 'sequence') return schemaGrants.sequence;
  if (kind === 'table')
    return schemaTables.test(name) ? schemaGrants.table : `GRANT SELECT, UPDATE ON ${name} TO <role>`;
  return 'see "Rights" in docs/records.md';
}

/**
 * Returns a line with its GRANT for every right on a team's table, or on the tokens of claims, that this role lacks.
 * `columns` are the columns that we write.
 */
export async function missingRights(
  db: Queryable,
  table: { oid: string; name: string },
  columns: readonly string[],
): Promise<string[]> {
  const { rows } = await db.query<Record<'may_read' | 'may_write' | 'may_claim', boolean> & { role: string }>(
    `SELECT quote_ident(current_user) AS role,
       NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
         AND NOT has_column_privilege($1::oid, attnum, 'SELECT')) AS may_read,
       (SELECT bool_and(has_column_privilege($1::oid, name, 'UPDATE')) FROM unnest($2::text[]) AS name) AS may_write,
       has_sequence_privilege('smart_router.tokens', 'USAGE') AS may_claim`,
    [table.oid, columns],
  );
  const [found] = rows;
  if (!found) return [];
  const { role } = found;
  const missing = [...(found.may_read ? [] : ['SELECT']), ...(found.may_write ? [] : ['UPDATE'])];
  const problems: string[] = [];
  if (missing.length > 0)
    problems.push(
      `role ${role} may not ${missing.join(' and ')} ${table.name}: GRANT ${missing.join(', ')} ON ${table.name} TO ${role}`,
    );
  if (!found.may_claim)
    problems.push(
      `role ${role} may not use the sequence smart_router.tokens: ${schemaGrants.sequence.replace('<role>', role)}`,
    );
  return problems;
}

/**
 * Returns what keeps us from changing the status of a row, as far as the catalogue shows it: generated columns, rules for
 * UPDATE, and row-level security that lets this role update no row or depends on a column that we change (a claimed
 * record could then not be finished).
 */
export async function writeObstacles(
  db: Queryable,
  oid: string,
  name: string,
  { status, touchedAt, error }: Workflow,
): Promise<string[]> {
  const { rows } = await db.query<{ kind: string; what: string; columns: string | null }>(
    `SELECT 'generated' AS kind, quote_ident(attname) AS what, NULL AS columns
       FROM pg_attribute WHERE attrelid = $1::oid AND attname = ANY ($2::text[]) AND attgenerated <> ''
     UNION ALL
     SELECT 'rule', quote_ident(rulename), NULL
       FROM pg_rewrite WHERE ev_class = $1::oid AND ev_type = '2' AND ev_enabled <> 'D'
     UNION ALL
     SELECT 'no policy', quote_ident(current_user), NULL
       FROM (VALUES ('r'), ('w')) AS needed (command)
       WHERE row_security_active($1::oid) AND NOT EXISTS (
         SELECT FROM pg_policy AS p WHERE p.polrelid = $1::oid AND p.polpermissive AND p.polcmd IN ('*', needed.command::"char")
           AND ('0' = ANY (p.polroles) OR EXISTS (SELECT FROM unnest(p.polroles) AS r WHERE r <> 0 AND pg_has_role(r, 'USAGE'))))
     UNION ALL
     SELECT 'policy', quote_ident(p.polname), string_agg(DISTINCT quote_ident(a.attname), ', ')
       FROM pg_policy AS p
         JOIN pg_depend AS d ON d.classid = 'pg_policy'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass
           AND d.refobjid = p.polrelid
         JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
       WHERE p.polrelid = $1::oid AND row_security_active($1::oid) AND p.polcmd IN ('*', 'r', 'w') AND a.attname = ANY ($2::text[])
       GROUP BY p.polname`,
    [oid, [status.column, touchedAt, ...(error === undefined ? [] : [error])]],
  );
  const lines = rows.map(({ kind, what, columns }) => {
    if (kind === 'generated') return `column ${what} of ${name} is a generated column: it cannot be written`;
    if (kind === 'rule')
      return `${name} has the rule ${what} for UPDATE: drop it, or replace it with a trigger`;
    if (kind === 'no policy')
      return `row-level security of ${name} lets role ${what} update no row: add a policy, or ALTER ROLE ${what} BYPASSRLS`;
    return `the policy ${what} of ${name} depends on ${columns}, which processing changes: a claimed record could not be finished; use a policy without it, or a role with BYPASSRLS`;
  });
  return [...new Set(lines)];
}
