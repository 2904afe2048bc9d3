-- Skips a record that the database does not let us claim, for an hour.
-- $1 workflow, $2 id
INSERT INTO smart_router.claims AS c (workflow, record_id, not_before) VALUES ($1, $2, now() + interval '1 hour')
ON CONFLICT (workflow, record_id) DO UPDATE SET not_before = excluded.not_before
WHERE c.token IS NULL
