/** The shapes of what the console asks for; see schemas.ts. */
import Type from 'typebox';
import { Call } from './schemas.js';

const orNull = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const time = Type.String();
const whole = Type.Integer();

export const SignInBody = Type.Object(
  // Any type: what is wrong with a key is said without showing it.
  { key: Type.Unknown({ description: 'the admin key: a string' }) },
  { description: 'a JSON object with key' },
);
export const SignedIn = Type.Object({
  success: Type.Literal(true),
  expires_at: orNull(Type.String({ description: 'null on a router without keys: it needs no session' })),
});
export const SignedOut = Type.Object({ success: Type.Literal(true) });
export const SessionState = Type.Object({
  required: Type.Boolean({ description: 'false on a router without keys' }),
  signed_in: Type.Boolean({ description: 'whether what needs the admin key is open to this browser' }),
  expires_at: orNull(time),
  version: Type.String(),
});

/** As patterns, because what stands in a query is text. */
const upTo = {
  360: '^([1-9]\\d?|[12]\\d\\d|3[0-5]\\d|360)$',
  500: '^([1-9]\\d?|[1-4]\\d\\d|500)$',
  1440: '^([1-9]\\d{0,2}|1[0-3]\\d\\d|14[0-3]\\d|1440)$',
};
const minutes = (most: keyof typeof upTo) =>
  Type.Optional(
    Type.String({ pattern: upTo[most], description: `a whole number of minutes from 1 to ${most}` }),
  );

const rate = Type.Number({ description: 'per second, over all replicas' });
const gauge = orNull(whole);
export const HistoryQuery = Type.Object({ minutes: minutes(360) });
export const History = Type.Object({
  step_seconds: Type.Integer({ description: 'how much time a point stands for' }),
  replicas: Type.Array(
    Type.Object({
      name: Type.String(),
      version: Type.String(),
      is_leader: Type.Boolean(),
      started_at: time,
      seen_at: time,
    }),
    { description: 'those seen within the last 30 s' },
  ),
  points: Type.Array(
    Type.Object({
      at: Type.String({ description: 'when the step begins' }),
      allocated: rate,
      released: rate,
      no_pods: rate,
      errors: rate,
      p50_ms: orNull(Type.Number({ description: 'of allocate; null without one' })),
      p99_ms: orNull(Type.Number()),
      active_calls: gauge,
      available: gauge,
      assigned: gauge,
      capacity: gauge,
      recovered: rate,
      lost: rate,
      records: Type.Record(Type.String(), Type.Object({ completed: rate, failed: rate, recovered: rate })),
    }),
    { description: 'the oldest first; a step of which nobody knows is missing' },
  ),
});

export const AlertList = Type.Object({
  alerts: Type.Array(
    Type.Object({
      name: Type.String(),
      severity: Type.Union([Type.Literal('warning'), Type.Literal('critical'), Type.Literal('page')]),
      summary: Type.String(),
      since: time,
      workflow: orNull(Type.String()),
      runbook: Type.String({ description: 'a page of this documentation' }),
    }),
    { description: 'the worst first' },
  ),
});

const filter = (what: string, max: number) =>
  Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: max,
      description: `${what}: a string of 1 to ${max} characters`,
    }),
  );
export const SearchQuery = Type.Object({
  type: Type.Optional(
    Type.String({
      maxLength: 512,
      pattern: '^[a-z_]{1,64}(,[a-z_]{1,64})*$',
      description: 'types of events, separated by commas',
    }),
  ),
  call: filter('the id of a call', 256),
  pod: filter('the name of a pod', 253),
  merchant: filter('the id of a merchant', 64),
  q: filter('what is looked for in any field', 256),
  before: Type.Optional(
    Type.String({ pattern: '^\\d{1,15}-\\d{1,19}$', description: 'the `before` of an earlier page' }),
  ),
  limit: Type.Optional(Type.String({ pattern: upTo[500], description: 'a whole number from 1 to 500' })),
});
const Event = Type.Object(
  { id: Type.String(), type: Type.String(), at: time },
  { additionalProperties: Type.String(), description: 'its fields, all as text' },
);
export const FoundEvents = Type.Object({
  events: Type.Array(Event, { description: 'the newest first' }),
  before: orNull(
    Type.String({
      description: 'pass it as ?before= to read on, also if nothing was found; null at the end',
    }),
  ),
  kept_since: orNull(
    Type.String({ description: 'everything since then is kept; of what is rare also older events' }),
  ),
});

export const Timeline = Type.Object({
  call_sid: Type.String(),
  live: orNull(Call),
  events: Type.Array(Event, { description: 'the oldest first' }),
  is_complete: Type.Boolean({ description: 'its beginning is still kept' }),
});

export const RecoveriesQuery = Type.Object({ minutes: minutes(1440) });
export const Recoveries = Type.Object({
  since: time,
  calls: Type.Object({ recovered: whole, lost: whole }),
  pods: Type.Object({ recovered: whole }),
  records: orNull(
    Type.Array(
      Type.Object({
        workflow: Type.String(),
        reason: Type.String(),
        outcome: Type.String(),
        records: whole,
      }),
      { description: 'empty without DATABASE_URL; null while the database does not answer' },
    ),
  ),
  items: Type.Array(
    Type.Object({
      at: time,
      kind: Type.Union([Type.Literal('call'), Type.Literal('pod'), Type.Literal('record')]),
      id: Type.String(),
      place: Type.String({ description: 'the pool or the workflow' }),
      reason: Type.String(),
      outcome: Type.String({
        description: 'recovered, lost, removed; of a record requeued, failed, held',
      }),
      age_seconds: orNull(
        Type.Number({ description: 'of a call since it was known; of a record since it was stuck' }),
      ),
      detail: orNull(Type.String({ description: 'the pod of a call, the last note of a record' })),
    }),
    { description: 'the newest first, at most 500' },
  ),
});

export const TiersPreview = Type.Object({
  valid: Type.Boolean({ description: 'whether PUT /tiers would take it' }),
  problems: Type.Array(Type.String()),
  warnings: Type.Array(Type.String()),
  chains: Type.Array(
    Type.Object({
      merchant_id: orNull(Type.String({ description: 'null: calls of merchants without configuration' })),
      chain: Type.Array(Type.String()),
      skipped: Type.Array(Type.Object({ step: Type.String(), reason: Type.String() })),
    }),
  ),
});
