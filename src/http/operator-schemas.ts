/** The shapes of requests and responses for operators, beside those of schemas.ts: settings, explain, the console. */
import Type from 'typebox';
import { AllocateBody, Call, flag, limit, oneOf, orNull, seconds, text, texts, whole } from './schemas.js';

const Hold = Type.Object(
  {
    max_wait: text('the longest wait'),
    max_waiting: whole('the most calls that wait at once'),
  },
  { description: 'calls that find no pod may wait for one, by these rules; absent: they are refused' },
);
export const Tiers = Type.Object({
  tiers: Type.Record(
    Type.String(),
    Type.Object({
      type: text('`exclusive` or `shared`'),
      target: whole('how many pods it should have'),
      max_concurrent: Type.Optional(whole('maximum calls per pod of a shared tier')),
    }),
    { description: 'by name' },
  ),
  default_chain: texts('the tiers that a call tries, in order'),
  hold: Type.Optional(Hold),
  version: whole('grows with every change; also the `ETag`'),
  warnings: Type.Optional(texts('accepted settings that may be mistakes; only in the response to `PUT`')),
});

export const skippedSteps = Type.Array(
  Type.Object({ step: text('the step as configured'), reason: text('why it is skipped') }),
  { description: 'configured steps that do not name a pool' },
);
export const Merchant = Type.Object({
  merchant_id: text('the merchant'),
  tier: Type.Optional(text('the tier at which its default chain begins, if configured')),
  pool: Type.Optional(text('its own pool, which is tried first, if configured')),
  fallback: Type.Optional(texts('the tiers that replace the default chain, if configured')),
  hold: Type.Optional(Hold),
  priority: Type.Optional(whole('0 to 9: among waiting calls, a higher one is served first; default 0')),
  weight: Type.Optional(whole('1 to 100: share of the pods among merchants of one priority; default 1')),
  max_calls: Type.Optional(whole('the most live calls of this merchant; absent: no limit')),
  fallback_number: Type.Optional(
    text('the number to which a held caller is connected when the wait expires'),
  ),
  chain: texts('the pools that a call of this merchant tries, in order'),
  skipped: skippedSteps,
});
export const Merchants = Type.Object({
  merchants: Type.Array(Merchant, { description: 'all configured merchants, by id' }),
});

const { call_sid, ...rest } = AllocateBody.properties;

export const ExplainBody = Type.Object(
  { call_sid: Type.Optional(call_sid), ...rest },
  { description: "a JSON object with an allocate's fields; without call_sid it is about any new call" },
);

const pods = (which: string) => whole(`pods ${which}`);

const Step = Type.Object({
  pool: text('`pool:{tier}` or `merchant:{id}`'),
  type: orNull(text('`exclusive` or `shared`; null if the pool does not exist')),
  max_concurrent: whole('calls that one pod takes at once'),
  pods: pods('of the pool'),
  counted: flag('false: the chain has too many pods to look at each; the counts below are lower bounds'),
  free: pods('that can take a call'),
  busy: pods('that have as many calls as they can take'),
  draining: pods('that drain'),
  terminating: pods('that terminate'),
  not_ready: pods('that are not ready'),
  awaiting_report: pods('that must report first'),
  unconfirmed: pods('held by the removal brake'),
  set_back: pods('on which calls failed: used if the chain has no other free pod'),
  misplaced: pods('with room that are missing from the available set; the sweep repairs that'),
  unreadable: pods('with a key of a wrong type, or blocked by hand'),
  result: oneOf('what allocate would do with this pool', 'taken', 'passed_over', 'not_tried'),
  reason: text('why'),
});

export const Explained = Type.Object({
  success: Type.Literal(true),
  would: oneOf('what an allocate would do now', 'allocate', 'wait', 'refuse'),
  code: orNull(text('the error code of a refusal; null without one')),
  summary: text('the answer as a sentence'),
  pod_name: orNull(text('a pod that the call may get: an exclusive pool gives any of its free pods')),
  source_pool: orNull(text('the pool of that pod')),
  was_existing: flag('whether the call already has this pod'),
  merchant_id: text('the merchant; empty without one'),
  max_calls: orNull(whole('most live calls of the merchant; null without a limit')),
  live_calls: orNull(whole('live calls that count against this limit; null without a limit')),
  queue: orNull(
    Type.Object(
      {
        position: orNull(whole('the place that the call would have in its queue; null if it would not wait')),
        waiting: whole('calls that wait in the same queue'),
        max_waiting: whole('most calls that may wait in it'),
        waiting_all: whole('calls that wait in all queues'),
        max_waiting_all: whole('most calls that may wait in all queues'),
        higher_priority: whole('calls of a higher priority that wait for a pool of the chain'),
      },
      { description: 'null if the call may not wait' },
    ),
  ),
  steps: Type.Array(Step, {
    description: 'the pools of the chain, in the order in which allocate tries them',
  }),
  skipped: skippedSteps,
  next: Type.Array(
    Type.Object({
      text: text('what would free a place'),
      at: orNull(text('when; null if that is not known')),
    }),
    { description: 'what would free a place, the earliest first; empty if the call would get a pod' },
  ),
});

export const SignInBody = Type.Object(
  // Any type, because the error of the validator would quote the key.
  { key: Type.Unknown({ description: 'the admin key: a string' }) },
  { description: 'a JSON object with key' },
);
export const SignedIn = Type.Object({
  success: Type.Literal(true),
  expires_at: orNull(text('when the session ends; null on a router without keys, which needs no session')),
});
export const SignedOut = Type.Object({ success: Type.Literal(true) });
export const SessionState = Type.Object({
  required: flag('false on a router without keys'),
  signed_in: flag('whether this browser may use endpoints that require the admin key'),
  expires_at: orNull(text('when the session ends; null without one')),
  version: text('the version of this router'),
});

/** As patterns, because values in a query are text. */
const upTo = {
  360: '^([1-9]\\d?|[12]\\d\\d|3[0-5]\\d|360)$',
  500: '^([1-9]\\d?|[1-4]\\d\\d|500)$',
  1440: '^([1-9]\\d{0,2}|1[0-3]\\d\\d|14[0-3]\\d|1440)$',
};
const minutes = (max: keyof typeof upTo) =>
  Type.Optional(
    Type.String({
      default: '60',
      pattern: upTo[max],
      description: `a whole number of minutes from 1 to ${max}`,
    }),
  );

const rate = (what: string) => Type.Number({ description: `${what}, per second` });
const gauge = (what: string) => orNull(whole(`${what}; null if unknown`));
export const HistoryQuery = Type.Object({ minutes: minutes(360) });
export const History = Type.Object({
  step_seconds: whole('length of a step'),
  replicas: Type.Array(
    Type.Object({
      name: text('its `POD_NAME`'),
      version: text('its version'),
      is_leader: flag('whether it is the leader'),
      started_at: text('when it started'),
      seen_at: text('when it last wrote'),
    }),
    { description: 'replicas seen within the last 30 s' },
  ),
  points: Type.Array(
    Type.Object({
      at: text('when the step begins'),
      allocated: rate('calls that got a pod'),
      released: rate('released calls'),
      no_pods: rate('calls that got no pod'),
      errors: rate('failed requests'),
      shed: rate('calls rejected by an overloaded router'),
      p50_ms: orNull(Type.Number({ description: 'median time of an allocate; null without one' })),
      p99_ms: orNull(Type.Number({ description: '99th percentile of an allocate; null without one' })),
      active_calls: gauge('live calls'),
      available: gauge('pods that can take a call'),
      assigned: gauge('pods'),
      capacity: gauge('calls that all pods can have at once'),
      recovered: rate('calls ended and pods made available because they had lost their owner'),
      lost: rate('calls that ended with their pod'),
      waiting: gauge('calls that wait for a pod'),
      waits_served: rate('calls that got a pod after a wait'),
      waits_within_5s: rate('those of them that waited at most 5 s'),
      waits_within_20s: rate('those of them that waited at most 20 s'),
      waits_abandoned: rate('waits that ended because the caller left'),
      waits_expired: rate('waits that exceeded `max_wait`'),
      records: Type.Record(
        Type.String(),
        Type.Object({
          completed: rate('records completed'),
          failed: rate('records failed'),
          recovered: rate('records recovered'),
        }),
        { description: 'by workflow' },
      ),
    }),
    { description: 'sums over all replicas, the oldest first; steps without data are missing' },
  ),
});

export const AlertList = Type.Object({
  alerts: Type.Array(
    Type.Object({
      name: text('a stable name'),
      severity: oneOf('its severity', 'warning', 'critical', 'page'),
      summary: text('the problem in a sentence'),
      since: text('when it started'),
      workflow: orNull(text('the workflow, of an alert about records')),
      runbook: text('a page of this documentation'),
    }),
    { description: 'the most severe first' },
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
  q: filter('text to find in any field', 256),
  before: Type.Optional(
    Type.String({ pattern: '^\\d{1,15}-\\d{1,19}$', description: 'the `before` of an earlier page' }),
  ),
  limit: limit(upTo[500], 500),
});
const Event = Type.Object(
  {
    id: text('its id; later events have higher ids'),
    type: text('one of [the types](#get-apiv1events)'),
    at: text('when it happened'),
  },
  { additionalProperties: Type.String(), description: 'each with the fields of its type, all as text' },
);
export const FoundEvents = Type.Object({
  events: Type.Array(Event, { description: 'the newest first' }),
  before: orNull(text('pass it as ?before= to read the next page, also after an empty one; null at the end')),
  kept_since: orNull(text('all events since then are kept; of rare types also older ones')),
});

export const Timeline = Type.Object({
  call_sid: text('the call'),
  live: Type.Union([Call, Type.Null()], { description: 'the call; null after it has ended' }),
  events: Type.Array(Event, { description: 'the oldest first' }),
  is_complete: flag('whether its first event is still kept'),
});

export const RecoveriesQuery = Type.Object({ minutes: minutes(1440) });
export const Recoveries = Type.Object({
  since: text('start of the period'),
  calls: Type.Object(
    { recovered: whole('ended because they had lost their owner'), lost: whole('ended with their pod') },
    { description: 'numbers of calls' },
  ),
  pods: Type.Object({ recovered: whole('made available by the sweep') }, { description: 'numbers of pods' }),
  records: orNull(
    Type.Array(
      Type.Object({
        workflow: text('the workflow'),
        reason: text('why they had no owner'),
        outcome: text('`requeued`, `failed` or `held`'),
        records: whole('number of records'),
      }),
      { description: 'empty without `DATABASE_URL`; null while the database is unreachable' },
    ),
  ),
  items: Type.Array(
    Type.Object({
      at: text('when it was recovered'),
      kind: oneOf('its kind', 'call', 'pod', 'record'),
      id: text('its id'),
      place: text('its pool or workflow'),
      reason: text('why it had no owner'),
      outcome: text('recovered, lost, removed; of a record: requeued, failed, held'),
      age_seconds: seconds('age of a call; of a record, how long it was stuck'),
      detail: orNull(text('the pod of a call, the last note of a record')),
    }),
    { description: 'the newest first, at most 500' },
  ),
});

export const TiersPreview = Type.Object({
  valid: flag('whether PUT /tiers would accept it'),
  problems: texts('all errors'),
  warnings: texts('settings that would be accepted and may be mistakes'),
  chains: Type.Array(
    Type.Object({
      merchant_id: orNull(text('null: merchants without configuration')),
      chain: texts('the pools that its calls would try, in order'),
      skipped: skippedSteps,
    }),
    { description: 'chains of every configured merchant, and of all others' },
  ),
});
