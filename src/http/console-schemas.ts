/** The shapes of what the console asks for; see schemas.ts. */
import Type from 'typebox';
import { flag, orNull, text, texts, whole } from './fields.js';
import { Call, skippedSteps } from './schemas.js';

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
  expires_at: orNull(text('when the session ends; null without one')),
  version: text('the version of this router'),
});

/** As patterns, because what stands in a query is text. */
const upTo = {
  360: '^([1-9]\\d?|[12]\\d\\d|3[0-5]\\d|360)$',
  500: '^([1-9]\\d?|[1-4]\\d\\d|500)$',
  1440: '^([1-9]\\d{0,2}|1[0-3]\\d\\d|14[0-3]\\d|1440)$',
};
const minutes = (most: keyof typeof upTo) =>
  Type.Optional(
    Type.String({
      default: '60',
      pattern: upTo[most],
      description: `a whole number of minutes from 1 to ${most}`,
    }),
  );

const rate = (what: string) => Type.Number({ description: `${what}, per second` });
const gauge = (what: string) => orNull(whole(`${what}; null when nobody knew`));
export const HistoryQuery = Type.Object({ minutes: minutes(360) });
export const History = Type.Object({
  step_seconds: Type.Integer({ description: 'how much time a point stands for' }),
  replicas: Type.Array(
    Type.Object({
      name: text('its `POD_NAME`'),
      version: text('its version'),
      is_leader: flag('it leads'),
      started_at: text('when it was started'),
      seen_at: text('when it last wrote'),
    }),
    { description: 'those seen within the last 30 s' },
  ),
  points: Type.Array(
    Type.Object({
      at: Type.String({ description: 'when the step begins' }),
      allocated: rate('calls that got a pod'),
      released: rate('calls that were released'),
      no_pods: rate('calls that got none'),
      errors: rate('requests that failed'),
      shed: rate('calls refused because a router had too much to do'),
      p50_ms: orNull(Type.Number({ description: 'half of the allocates took no longer; null without one' })),
      p99_ms: orNull(Type.Number({ description: '99 of 100 took no longer; null without one' })),
      active_calls: gauge('live calls'),
      available: gauge('pods that could take a call'),
      assigned: gauge('pods'),
      capacity: gauge('calls that all pods could have'),
      recovered: rate('calls ended and pods put back because they had lost their owner'),
      lost: rate('calls that ended with their pod'),
      records: Type.Record(
        Type.String(),
        Type.Object({
          completed: rate('records completed'),
          failed: rate('records failed'),
          recovered: rate('records brought back'),
        }),
        { description: 'by workflow' },
      ),
    }),
    { description: 'sums over all replicas, the oldest first; a step of which nobody knows is missing' },
  ),
});

export const AlertList = Type.Object({
  alerts: Type.Array(
    Type.Object({
      name: text('a stable name'),
      severity: Type.Union([Type.Literal('warning'), Type.Literal('critical'), Type.Literal('page')], {
        description: 'how bad it is',
      }),
      summary: text('what is wrong, in a sentence'),
      since: text('since when'),
      workflow: orNull(text('which one, of an alert about records')),
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
  limit: Type.Optional(
    Type.String({ default: '100', pattern: upTo[500], description: 'a whole number from 1 to 500' }),
  ),
});
const Event = Type.Object(
  {
    id: text('its id: later events have higher ones'),
    type: text('one of [the types](#get-apiv1events)'),
    at: text('when it happened'),
  },
  { additionalProperties: Type.String(), description: 'each with the fields of its type, all as text' },
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
  call_sid: text('the call'),
  live: Type.Union([Call, Type.Null()], { description: 'the call while it lives' }),
  events: Type.Array(Event, { description: 'the oldest first' }),
  is_complete: Type.Boolean({ description: 'its beginning is still kept' }),
});

export const RecoveriesQuery = Type.Object({ minutes: minutes(1440) });
export const Recoveries = Type.Object({
  since: text('from when on'),
  calls: Type.Object(
    { recovered: whole('ended because they had lost their owner'), lost: whole('ended with their pod') },
    { description: 'how many calls' },
  ),
  pods: Type.Object({ recovered: whole('put back by the sweep') }, { description: 'how many pods' }),
  records: orNull(
    Type.Array(
      Type.Object({
        workflow: text('the workflow'),
        reason: text('why they had no owner'),
        outcome: text('`requeued`, `failed` or `held`'),
        records: whole('how many'),
      }),
      { description: 'empty without `DATABASE_URL`; null while the database does not answer' },
    ),
  ),
  items: Type.Array(
    Type.Object({
      at: text('when it was brought back'),
      kind: Type.Union([Type.Literal('call'), Type.Literal('pod'), Type.Literal('record')], {
        description: 'what it is',
      }),
      id: text('which one'),
      place: Type.String({ description: 'the pool or the workflow' }),
      reason: text('why it had no owner'),
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
  problems: texts('everything that is wrong'),
  warnings: texts('what would be accepted and may not be meant'),
  chains: Type.Array(
    Type.Object({
      merchant_id: orNull(Type.String({ description: 'null: calls of merchants without configuration' })),
      chain: texts('the pools that its calls would try, in order'),
      skipped: skippedSteps,
    }),
    { description: 'of every merchant that is configured, and of all others' },
  ),
});
