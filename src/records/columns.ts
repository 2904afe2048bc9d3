/** Reads the columns of a table from the catalogue of the database. */
import { quoteText } from './identifiers.js';
import type { Queryable } from './sessions.js';

export interface Column {
  name: string;
  type: string;
  /** For casts; with its schema unless it is built in. Without length and scale: a cast to varchar(5) would cut longer texts. */
  base_type: string;
  /** `S`: a string type, `A`: an array. */
  category: string;
  is_required: boolean;
  is_unique: boolean;
  leads_index: boolean;
  /** Conditions of partial indexes on this column. */
  index_conditions: string[];
  /** Values that its collation takes for equal have one text. */
  is_deterministic: boolean;
  labels: string[] | null;
}

export async function readColumns(db: Queryable, oid: string): Promise<Map<string, Column>> {
  const { rows } = await db.query<Column>(
    `SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       CASE WHEN b.typnamespace <> 'pg_catalog'::regnamespace AND pg_type_is_visible(b.oid)
         THEN b.typnamespace::regnamespace::text || '.' ELSE '' END || format_type(b.oid, -1) AS base_type,
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
       NOT EXISTS (SELECT FROM pg_collation l WHERE l.oid = a.attcollation AND NOT l.collisdeterministic) AS is_deterministic,
       CASE t.typtype WHEN 'e' THEN ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder) END AS labels
     FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       JOIN pg_type b ON b.oid = (
         WITH RECURSIVE base AS (
           SELECT t.oid, t.typtype, t.typbasetype
           UNION ALL
           SELECT inner_type.oid, inner_type.typtype, inner_type.typbasetype
           FROM base JOIN pg_type inner_type ON base.typtype = 'd' AND inner_type.oid = base.typbasetype
         )
         SELECT oid FROM base WHERE typtype <> 'd'
       )
     WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`,
    [oid],
  );
  return new Map(rows.map((column) => [column.name, column]));
}

/** Whether a partial index with this condition has every row whose status is `value`. */
export function coversStatus(condition: string, value: string): boolean {
  return (
    condition.includes(quoteText(value)) &&
    / = /.test(condition) &&
    !/ AND |\bNOT\b| OR | IS |<>/.test(condition)
  );
}
