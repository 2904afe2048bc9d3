-- The weekly report: the weeks delivered, and what only the processes themselves can count.

-- One row per week. The replica that takes it delivers the report; after a failed delivery another replica may take it.
CREATE TABLE smart_router.reports (
  until timestamptz PRIMARY KEY,
  since timestamptz NOT NULL,
  taken_at timestamptz NOT NULL DEFAULT now(),
  taken_by text NOT NULL,
  delivered_at timestamptz,
  report jsonb
);

-- Finishes after the claim was lost, by hour; a row of zero says that a process counted.
CREATE TABLE smart_router.late_finishes (
  hour timestamptz NOT NULL,
  workflow text NOT NULL,
  records bigint NOT NULL,
  PRIMARY KEY (hour, workflow)
);
