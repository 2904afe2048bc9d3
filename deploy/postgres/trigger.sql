-- The clean-up by whoever writes to the table, for PostgreSQL without any scheduler. zombie_cleanup.sql first. One
-- trigger per table; it is the only thing that is added to a table of yours. Where the status is a text, name its values
-- too: 'processing=busy', 'queued=new'.

-- WF6, sitemap import
CREATE OR REPLACE TRIGGER reset_stuck AFTER INSERT OR UPDATE ON sitemap_files FOR EACH STATEMENT
  EXECUTE FUNCTION smart_router.reset_on_touch('status=sitemap_import_status', 'error=sitemap_import_error');

-- WF7, page curation
CREATE OR REPLACE TRIGGER reset_stuck AFTER INSERT OR UPDATE ON pages FOR EACH STATEMENT
  EXECUTE FUNCTION smart_router.reset_on_touch('status=page_processing_status', 'error=page_processing_error');
