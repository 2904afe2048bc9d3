-- The weekly report: which weeks have been told, and what only the processes themselves can count.

-- One row per week. Whoever takes it makes the report; one that was taken and not delivered is free again after a while.
CREATE TABLE smart_router.reports (
  until timestamptz PRIMARY KEY,
  since timestamptz NOT NULL,
  taken_at timestamptz NOT NULL DEFAULT now(),
  taken_by text NOT NULL,
  delivered_at timestamptz,
  report jsonb
);

-- Finishes that came after somebody else had got the record, by hour; a row of zero says that somebody counted.
CREATE TABLE smart_router.late_finishes (
  hour timestamptz NOT NULL,
  workflow text NOT NULL,
  records bigint NOT NULL,
  PRIMARY KEY (hour, workflow)
);
