-- Files that a sitemap index names, as Queued; those that are known already stay as they are, which ends every cycle.
-- $1 the index, $2 depth of the files, $3 URLs, $4 their domains
INSERT INTO sitemap_files (parent_id, depth, url, domain)
SELECT $1, $2, given.url, given.domain
FROM unnest($3::text[], $4::text[]) AS given (url, domain)
ON CONFLICT (url) DO NOTHING
