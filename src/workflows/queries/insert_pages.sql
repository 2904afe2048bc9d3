-- Inserts new pages as Queued; existing ones stay unchanged.
-- $1 sitemap file, $2 URLs, $3 their domains
INSERT INTO pages (sitemap_file_id, url, domain)
SELECT $1, given.url, given.domain
FROM unnest($2::text[], $3::text[]) AS given (url, domain)
ON CONFLICT (url) DO NOTHING
