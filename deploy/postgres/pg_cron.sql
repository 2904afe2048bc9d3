-- Runs the clean-up every 15 minutes with the extension pg_cron. Install zombie_cleanup.sql first. One statement per table;
-- running it again under the same name replaces it. At most `batch` rows per call: raise it, or the frequency, if more
-- rows get stuck in 15 minutes. For a text column name the values too: processing => 'busy', queued => 'new'.

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
