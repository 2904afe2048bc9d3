-- The rows of outcomes that were not written although their token held.
-- $1 ids, $2 the table
SELECT given.record_id AS id, t.{status}::text AS status, coalesce(t.{status} = {processing}, false) AS "isProcessing",
  coalesce(t.{status} = {queued}, false) AS "isQueued", row_security_active($2::text) AS "isSecured"
FROM unnest($1::text[]) AS given (record_id) LEFT JOIN {table} AS t ON t.{id} = given.record_id::{id_type}
