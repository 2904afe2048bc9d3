-- After a finish that changed nothing although its token held: what there is to see of these rows.
-- $1 ids, $2 the table
SELECT given.record_id, t.{status}::text AS status, coalesce(t.{status} = {processing}, false) AS is_processing,
  coalesce(t.{status} = {queued}, false) AS is_queued, row_security_active($2::text) AS is_secured
FROM unnest($1::text[]) AS given (record_id) LEFT JOIN {table} AS t ON t.{id} = given.record_id::{id_type}
