-- Runs the clean-up on writes to the table, without a scheduler. Install zombie_cleanup.sql first. One trigger per table:
-- the only thing that is added to your table. For a text column name the values too: 'processing=busy', 'queued=new'.

-- WF6, sitemap import
CREATE OR REPLACE TRIGGER reset_stuck AFTER INSERT OR UPDATE ON sitemap_files FOR EACH STATEMENT
  EXECUTE FUNCTION smart_router.reset_on_touch('status=sitemap_import_status', 'error=sitemap_import_error');

-- WF7, page curation
CREATE OR REPLACE TRIGGER reset_stuck AFTER INSERT OR UPDATE ON pages FOR EACH STATEMENT
  EXECUTE FUNCTION smart_router.reset_on_touch('status=page_processing_status', 'error=page_processing_error');
