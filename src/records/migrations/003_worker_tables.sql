-- The table of each workflow of a worker, by the workflow's name. Claims are stored under the name: two live workers with
-- one name and two tables would take each other's claims. NULL: a worker of a version that does not write it.
ALTER TABLE smart_router.workers ADD COLUMN tables jsonb;
