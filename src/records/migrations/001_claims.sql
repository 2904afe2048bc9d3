-- Our own schema beside the team's tables: workers, their claims, and resets of stuck records.

-- Identifies this database: outcomes spooled for it must never be written to another one with the same names.
CREATE TABLE smart_router.installation (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid()
);
INSERT INTO smart_router.installation DEFAULT VALUES;

-- One row per workflow name; its number keeps the claims small.
CREATE TABLE smart_router.workflows (
  id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE
);

-- One row per process that claims records. `heartbeat_at` is the database's time.
CREATE TABLE smart_router.workers (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  process uuid NOT NULL UNIQUE,
  host text NOT NULL,
  pid integer NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  heartbeat_at timestamptz NOT NULL DEFAULT now()
);

CREATE SEQUENCE smart_router.tokens;

-- One row per record that is claimed, pauses after a reset, or was seen stuck. Finished records have none.
-- No index but the key: the table is only as large as the work in progress, and every index costs WAL per claim.
-- Wide columns first: without padding a claim is 12 bytes shorter.
CREATE TABLE smart_router.claims (
  -- NULL: not claimed. A new claim has a new token, which voids the old one.
  token bigint,
  claimed_at timestamptz,
  worker integer,
  timeout_ms integer,
  workflow smallint NOT NULL,
  resets smallint NOT NULL DEFAULT 0,
  record_id text NOT NULL,
  -- Pause after a reset: not claimed before this time.
  not_before timestamptz,
  -- When a row in Processing without a claim and a timestamp was first seen: it ages from then.
  seen_at timestamptz,
  -- Policy `hold`: kept for a person.
  held_at timestamptz,
  trace text,
  -- Of a record that was reset: the token of the latest claim whose handler started. Not written for others.
  begun bigint,
  PRIMARY KEY (workflow, record_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX claims_waiting ON smart_router.claims (workflow, not_before) WHERE not_before IS NOT NULL;

-- History of resets: for the report, the console and operators.
CREATE TABLE smart_router.resets (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now(),
  workflow smallint NOT NULL,
  record_id text NOT NULL,
  -- Of the claim that the reset ended.
  token bigint,
  -- dead_worker, timed_out, given_up, unclaimed, by_hand
  reason text NOT NULL,
  -- requeued, failed, held
  outcome text NOT NULL,
  resets integer NOT NULL,
  stuck_seconds double precision,
  worker text,
  trace text
);

CREATE INDEX resets_at ON smart_router.resets (at);
