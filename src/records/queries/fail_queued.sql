-- Sets a queued record to Failed that can be neither claimed nor skipped.
-- $1 id, $2 the error
UPDATE {table} AS t SET {status} = {failed}{set_error_queued}, {touched} = {now}
WHERE t.{id} = $1::text::{id_type} AND t.{status} = {queued} AND $2::text IS NOT NULL
