-- The clean-up every 15 minutes from inside the database, for PostgreSQL with the extension pg_cron. zombie_cleanup.sql
-- first. One line per table; calling it again under the same name replaces it. At most `batch` rows per call and
-- transaction: raise it, or the rhythm, if more than that get stuck in a quarter of an hour. Where the status is a text,
-- name its values too: processing => 'busy', queued => 'new'.

-- WF6, sitemap import
SELECT cron.schedule('smart-router: sitemap_files', '*/15 * * * *', $$
  SELECT count(*) FROM smart_router.reset_stuck('sitemap_files', 'sitemap_import_status',
    error_column => 'sitemap_import_error', stuck_after => '60 minutes', batch => 5000)
$$);

-- WF7, page curation
SELECT cron.schedule('smart-router: pages', '*/15 * * * *', $$
  SELECT count(*) FROM smart_router.reset_stuck('pages', 'page_processing_status',
    error_column => 'page_processing_error', stuck_after => '60 minutes', batch => 5000)
$$);
