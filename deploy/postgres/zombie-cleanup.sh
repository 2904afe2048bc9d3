#!/bin/sh
# Runs the clean-up with cron and psql, for PostgreSQL without pg_cron. Install zombie_cleanup.sql first. In a crontab:
#
#   */15 * * * * DATABASE_URL=postgres://... /usr/local/bin/zombie-cleanup.sh pages page_processing_status page_processing_error
#
# Usage: zombie-cleanup.sh [--dry-run] TABLE STATUS_COLUMN [ERROR_COLUMN]
# Environment: DATABASE_URL, or psql's own PGHOST and so on; ZOMBIE_STUCK_THRESHOLD_MINUTES (60); ZOMBIE_BATCH (1000);
# TOUCHED_COLUMN (updated_at); ID_COLUMN (id); WORKFLOW, the name of the workflow in the router; PROCESSING, QUEUED and
# (with WORKFLOW) FAILED, the values of the status: required for a text column, else Processing, Queued and Failed.
#
# Runs batches, each in its own transaction, until one is not full. Prints how many were reset; exit code 0, or psql's.
set -eu

dry_run=false
if [ "${1:-}" = --dry-run ]; then
  dry_run=true
  shift
fi
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  echo 'usage: zombie-cleanup.sh [--dry-run] TABLE STATUS_COLUMN [ERROR_COLUMN]' >&2
  exit 2
fi
batch=${ZOMBIE_BATCH:-1000}
total=0

while :; do
  # Names are passed as values, never as SQL.
  reset=$(psql ${DATABASE_URL:+"$DATABASE_URL"} --no-psqlrc --quiet --tuples-only --no-align \
    -v ON_ERROR_STOP=1 -v table="$1" -v status="$2" -v error="${3:-}" -v batch="$batch" -v dry_run="$dry_run" \
    -v touched="${TOUCHED_COLUMN:-updated_at}" -v id="${ID_COLUMN:-id}" -v workflow="${WORKFLOW:-}" \
    -v processing="${PROCESSING:-}" -v queued="${QUEUED:-}" -v failed="${FAILED:-}" \
    -v minutes="${ZOMBIE_STUCK_THRESHOLD_MINUTES:-60}" <<'SQL'
SELECT count(*) FROM smart_router.reset_stuck(:'table', :'status',
  touched_column => :'touched', error_column => nullif(:'error', ''), id_column => :'id',
  stuck_after => make_interval(mins => :'minutes'::integer), batch => :'batch'::integer,
  processing => nullif(:'processing', ''), queued => nullif(:'queued', ''), failed => nullif(:'failed', ''),
  workflow => nullif(:'workflow', ''), dry_run => :'dry_run'::boolean);
SQL
  )
  total=$((total + reset))
  if [ "$dry_run" = true ] || [ "$reset" -lt "$batch" ]; then break; fi
done

if [ "$dry_run" = true ]; then echo "$1: $total stuck records would be reset (at most $batch are checked)"
elif [ "$total" -gt 0 ]; then echo "$1: reset $total stuck records"
fi
