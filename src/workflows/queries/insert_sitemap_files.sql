-- Inserts the files of a sitemap index as Queued; existing ones stay unchanged, which ends every cycle.
-- $1 the index, $2 depth of the files, $3 URLs, $4 their domains
INSERT INTO sitemap_files (parent_id, depth, url, domain)
SELECT $1, $2, given.url, given.domain
FROM unnest($3::text[], $4::text[]) AS given (url, domain)
ON CONFLICT (url) DO NOTHING
