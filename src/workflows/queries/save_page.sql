-- Stores the results of a page; status and timestamp are written with the outcome.
-- $1 page, $2 title, $3 description, $4 contacts
UPDATE pages SET title = $2, description = $3, contacts = $4
WHERE id = $1
