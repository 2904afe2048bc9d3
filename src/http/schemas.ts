/**
 * The shapes of requests and responses. The same objects validate, serialise and become OpenAPI. The description of a
 * request field completes the sentence "field must be ..." in the error for a wrong value.
 */
import Type from 'typebox';
import { sharedVariables } from '../config/fields.js';
import type { ErrorCode } from '../errors.js';
import { MAX_SEGMENT_LENGTH } from './providers/ws-url.js';

export const text = (description: string) => Type.String({ description });
export const whole = (description: string) => Type.Integer({ description });
export const flag = (description: string) => Type.Boolean({ description });
export const texts = (description: string) => Type.Array(Type.String(), { description });
export const orNull = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
export const seconds = (description: string) => orNull(Type.Number({ description }));
export const oneOf = <Word extends string>(description: string, ...words: Word[]) =>
  Type.Unsafe<Word>({ anyOf: words.map((word) => Type.Literal(word)), description });
/** A number in a query, which is text. */
export const limit = (pattern: string, max: number, note = '') =>
  Type.Optional(
    Type.String({ default: '100', pattern, description: `a whole number from 1 to ${max}${note}` }),
  );
/** From 1 to 1000, as a pattern. */
export const upTo1000 = '^([1-9][0-9]{0,2}|1000)$';

/** Without control characters (C0, DEL, C1) and lone surrogates. */
const printable = '^[^\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff]*$';
const namePattern = '^[A-Za-z0-9_.-]{1,64}$';
const segmentPattern = '^(?!\\.{1,2}$)[^\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff]+$';

const callSid = Type.String({
  minLength: 1,
  maxLength: 256,
  pattern: printable,
  description: "the provider's call id: a string of 1 to 256 characters without control characters",
});
const name = (what: string) =>
  Type.String({ pattern: namePattern, description: `${what}: a string of 1 to 64 of A-Z a-z 0-9 _ . -` });
const podName = Type.String({
  minLength: 1,
  maxLength: 253,
  pattern: '^(?!metadata$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$',
  description: 'the name of a pod: a DNS-1123 name of at most 253 characters, not "metadata"',
});
/** `fallback` is only documentation: the validator does not fill it in. */
const segment = (what: string, max: number, fallback?: string) =>
  Type.String({
    ...(fallback === undefined ? {} : { default: fallback }),
    minLength: 1,
    maxLength: max,
    pattern: segmentPattern,
    description: `${what}: a string of 1 to ${max} characters without control characters`,
  });
const fence = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'the fence from the response to allocate: a whole number',
});
const success = Type.Literal(true);
const givenFence = whole('identifies this allocation: with it, a late renew or release changes nothing');
const leaseEnd = text('when the lease of the call expires unless it is renewed');
const generation = Type.Optional(whole("grows when the store's master changes: agents then report at once"));
const sourcePool = text('the pool of the pod: `pool:{tier}` or `merchant:{id}`');

export const AllocateBody = Type.Object(
  {
    call_sid: callSid,
    merchant_id: Type.Optional(name('the id of a merchant')),
    provider: Type.Optional(segment('the name of the telephony provider', 64, 'twilio')),
    flow: Type.Optional(segment('the flow of the conversation', 64, 'v2')),
    template: Type.Optional(
      segment('the template of the conversation', MAX_SEGMENT_LENGTH, 'order-confirmation'),
    ),
    wait: Type.Optional(
      Type.String({
        maxLength: 64,
        description:
          'how long the request may wait for a pod, 0s to 60s, if `hold` is configured; without it, a call that finds no pod is refused',
      }),
    ),
  },
  { description: 'a JSON object with call_sid' },
);

const unconfirmed = 'only if fewer replicas than `REDIS_WAIT_REPLICAS` have confirmed the change';
const replicated = Type.Optional(Type.Literal(false, { description: unconfirmed }));
export const Allocated = Type.Object({
  success,
  pod_name: text('the pod that serves the call'),
  ws_url: text('the URL to which the provider streams the call'),
  source_pool: sourcePool,
  allocated_at: text('when the call got the pod'),
  lease_expires_at: leaseEnd,
  fence: givenFence,
  was_existing: flag('whether the call already had this pod'),
  waited_ms: Type.Optional(whole('how long the call waited for its pod')),
  replicated,
  generation,
});
export const WaitingAnswer = Type.Object({
  success,
  status: Type.Literal('waiting'),
  position: whole('the place among the waiting calls of this merchant, from 1'),
  waiting_since: text('when the call entered the queue'),
  wait_expires_at: text('when its wait ends: `max_wait` after it entered'),
  retry_after_ms: whole('ask again within three times this, or the call loses its place'),
});

export const CallBody = Type.Object(
  { call_sid: callSid, fence: Type.Optional(fence) },
  { description: 'a JSON object with call_sid' },
);
export const ReleaseBody = Type.Object(
  {
    ...CallBody.properties,
    reason: Type.Optional(
      Type.Literal('connect_failed', {
        description:
          'connect_failed, if the caller could not connect to the pod; three failed calls in a row set the pod back',
      }),
    ),
  },
  { description: 'a JSON object with call_sid' },
);
export const Released = Type.Object({
  success,
  pod_name: orNull(text('the pod of the call; null if it was waiting for one')),
  released_to_pool: orNull(
    text('the pool in which the pod is available again; null when it takes no calls (draining, not ready)'),
  ),
  was_draining: flag('whether the pod drains'),
  was_waiting: Type.Optional(flag('true if the call was waiting for a pod; it has left the queue')),
  replicated,
});
export const Renewed = Type.Object({ success, lease_expires_at: leaseEnd, generation });
const podUid = segment('the uid of the pod', 128);
export const ReportBody = Type.Object(
  {
    calls: Type.Array(callSid, { maxItems: 10_000, description: 'a list of at most 10,000 call ids' }),
    uid: Type.Optional(podUid),
    tier: Type.Optional(name('the tier of the pod')),
    merchant: Type.Optional(name('the merchant of the pod')),
    as_of: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: Number.MAX_SAFE_INTEGER,
        description:
          'a time of the router in milliseconds: `at` of the response to the last report plus the time since',
      }),
    ),
    interval_ms: Type.Optional(
      Type.Integer({
        minimum: 100,
        maximum: 600_000,
        description:
          'milliseconds between two reports, 100 to 600,000; after three intervals (at least 15 s) without a report the pod gets no new calls until it reports',
      }),
    ),
  },
  { description: 'a JSON object with calls' },
);
export const Reported = Type.Object({
  at: whole("the store's time in milliseconds"),
  renewed: texts('calls whose lease was renewed'),
  adopted: texts('calls that the store did not know and has now assigned to this pod'),
  ended: texts('calls ended: not reported for `REPORT_GRACE`, or not in two reports after a failover'),
  conflicts: texts('calls to drop: another pod owns them, they have ended, or the pod is full'),
  // The default pattern `^.*$` would drop a SID with a line separator (U+2028).
  fences: Type.Record(Type.String({ pattern: '^[^]*$' }), Type.Integer(), {
    description: 'the fence of every renewed and adopted call',
  }),
  generation,
});
export const DrainBody = Type.Object(
  {
    pod_name: podName,
    uid: Type.Optional(podUid),
    wait: Type.Optional(
      Type.String({ maxLength: 32, description: 'a duration like 30s or 5m, at most 24h' }),
    ),
  },
  { description: 'a JSON object with pod_name' },
);
const activeCalls = whole('live calls on the pod');
const message = text('the result as a sentence');
export const Drained = Type.Object({
  success,
  pod_name: text('the pod'),
  has_active_call: flag('whether it has a live call'),
  active_calls: activeCalls,
  message,
  drain_expires_at: text('when the drain expires unless it is repeated'),
  replicated,
});
export const UndrainBody = Type.Object(
  { pod_name: podName, uid: Type.Optional(podUid) },
  { description: 'a JSON object with pod_name' },
);
export const Undrained = Type.Object({
  success,
  pod_name: text('the pod'),
  active_calls: activeCalls,
  message,
});

export const PodParams = Type.Object({ pod: podName });
export const CallParams = Type.Object({ sid: callSid });
export const MerchantParams = Type.Object({ id: name('the id of a merchant') });

export const Pod = Type.Object({
  pod_name: text('its name'),
  tier: text('its tier, or `merchant:{id}`'),
  is_draining: flag('whether it drains or terminates: no new calls'),
  draining_until: orNull(text('when the drain expires')),
  blocked_by: orNull(
    text(
      'why it takes no new calls: `draining`, `terminating`, `not_ready`, `awaiting_report`, `flapping` (set back because calls failed on it; used only when no other pod is free), `unconfirmed`, `unreadable` (one of its keys has a wrong type); null if it takes calls',
    ),
  ),
  has_active_lease: flag('whether it has a live call'),
  lease_call_sid: orNull(text('the latest of its live calls')),
  calls: texts('its live calls'),
  leases: Type.Array(
    Type.Object({ call_sid: text('the call'), lease_expires_at: text('when its lease expires') }),
    { description: 'the same calls with their leases' },
  ),
  last_report_at: orNull(text('when it last reported; null if never')),
  uid: text('its UID in the cluster; empty if the pod source has none'),
  started_at: orNull(text('when its container started; null if the pod source does not know')),
});
const request = {
  merchant_id: text('its merchant; empty without one'),
  provider: text('its telephony provider'),
  flow: text('its flow'),
  template: text('its template'),
};
export const Call = Type.Object({
  call_sid: text("the provider's call id"),
  pod_name: text('the pod that serves it'),
  source_pool: sourcePool,
  ...request,
  allocated_at: text('when it got the pod'),
  renewed_at: orNull(text('when it was last renewed or reported; null if never')),
  lease_expires_at: leaseEnd,
  fence: givenFence,
});

const cursor = Type.Union([Type.String(), Type.Null()], {
  description: 'pass it as ?cursor= to read the next page; null at the end',
});
export const PageQuery = Type.Object({
  pool: Type.Optional(
    Type.String({
      pattern: '^(pool|merchant):[A-Za-z0-9_.-]{1,64}$',
      description: 'a pool like pool:gold or merchant:acme',
    }),
  ),
  cursor: Type.Optional(
    Type.String({
      maxLength: 128,
      pattern: '^((pool|merchant):[A-Za-z0-9_.-]{1,64}|waiting),[0-9]{1,19}$',
      description: 'the cursor of an earlier page',
    }),
  ),
  limit: limit(upTo1000, 1000, '; a page may be a little larger'),
});
export const PodPage = Type.Object({ pods: Type.Array(Pod, { description: 'pods' }), cursor });
export const CallQuery = Type.Object({
  ...PageQuery.properties,
  waiting: Type.Optional(
    Type.Literal('true', { description: 'true, for the calls that wait for a pod instead of the live ones' }),
  ),
});
export const WaitingCall = Type.Object({
  call_sid: text("the provider's call id"),
  ...request,
  position: whole(
    'its place among the waiting calls of its merchant, from 1; merchants without a configuration share one queue',
  ),
  waiting_since: text('when it entered the queue'),
  wait_expires_at: text('when its wait ends'),
  reason: text(
    'why it waits now: `no_pods` (no pod of its chain is free) or `merchant_limit` (its merchant is at its `max_calls`)',
  ),
  saw: text('what it found when it entered the queue'),
});
export const CallPage = Type.Object({
  calls: Type.Array(Call, { description: 'live calls; empty with `waiting=true`' }),
  waiting: Type.Optional(
    Type.Array(WaitingCall, { description: 'waiting calls, in no order; only with `waiting=true`' }),
  ),
  cursor,
});

export const Pool = Type.Object({
  type: text('`exclusive`, `shared`, or `gone` (its tier was deleted and its pods wait to be moved)'),
  assigned: whole('its pods'),
  available: whole('pods that can take a call now'),
  active_calls: whole('live calls on its pods'),
  capacity: whole('calls that its pods can have at once'),
  unreadable_key: Type.Optional(
    text('the key of its pods; only if that key has a wrong type, so that the counts are unknown'),
  ),
});
const lastError = (what: string) => orNull(text(`${what}; null without one`));
const Loop = Type.Object({
  name: text('its name'),
  running: flag('whether a round runs or is scheduled'),
  rounds: whole('rounds since it started'),
  crashes: whole('rounds that failed'),
  last_round_at: orNull(text('when the last round ended')),
  last_error: lastError('why the last round failed'),
  counts: Type.Record(Type.String(), Type.Number(), { description: 'results of the last round' }),
});
const RecordsState = Type.Object({
  database: oneOf('whether the database is reachable', 'up', 'down'),
  paused: flag('no claims, because database sessions fail'),
  braked: flag('no recovery yet, because most workers missed their heartbeats at the same time'),
  cleanup: flag('whether this router requeues stuck records'),
  error: orNull(text('why records are not processed')),
  workflows: Type.Array(
    Type.Object({
      name: text('its name'),
      stuck: orNull(whole('stuck records in the last sweep; null before the first')),
      oldest_stuck_seconds: seconds('how long the oldest of them has been stuck; null without one'),
    }),
    { description: 'the workflows of this router' },
  ),
});
export const Status = Type.Object({
  status: oneOf('whether the store is reachable', 'up', 'down'),
  version: text('the version of this router'),
  pools: Type.Record(Type.String(), Pool, { description: 'by tier, or `merchant:{id}`' }),
  active_calls: orNull(whole('live calls; null while the store is unreachable')),
  waiting_calls: orNull(whole('calls that wait for a pod; null while the store is unreachable')),
  oldest_wait_seconds: seconds('how long the oldest of them has waited; null without one'),
  removals_held: orNull(whole('pods that the removal brake holds; null while the store is unreachable')),
  is_leader: flag('whether this replica is the leader'),
  leader: orNull(text('the leader; null without a leader, or if it is unknown')),
  election: Type.Object(
    {
      lock: text('the lock of the leader'),
      last_error: lastError('why the lock could not be read or written'),
    },
    { description: 'the leader election' },
  ),
  loops: Type.Array(Loop, { description: 'the background loops of this replica' }),
  records: Type.Union([RecordsState, Type.Null()], { description: 'null without `DATABASE_URL`' }),
  tier_version: whole('the version of the tier configuration'),
  tier_config_differs: flag(
    'whether `TIER_CONFIG` of this replica differs from the configuration in the store',
  ),
  replicas_differ: texts(`live replicas with other values than this one of ${sharedVariables}`),
  store_error: orNull(text('why the store is unreachable, or why the pools cannot be read')),
});

export const ConfirmBody = Type.Object({}, { description: 'a JSON object, or nothing' });
export const Removals = Type.Object({
  held: texts('pods that the removal brake holds'),
  confirmed: texts('held pods that the leader removes next'),
});
const Finding = Type.Object({
  kind: text('a stable name of the kind of finding'),
  pod_name: orNull(text('the pod concerned')),
  call_sid: orNull(text('the call concerned')),
  pool: orNull(text('the pool concerned')),
  message: text('the contradiction, and what repairs it'),
});
export const Audit = Type.Object({
  complete: flag('false if it ran out of time or the router stops'),
  took_ms: whole('its duration'),
  looked_at: Type.Object(
    { pools: whole('pools'), pods: whole('pods'), calls: whole('calls'), keys: whole('keys of the store') },
    { description: 'numbers of checked objects' },
  ),
  violation_count: whole('broken invariants; 0 in a healthy system'),
  violations: Type.Array(Finding, { description: 'the first 100 of them' }),
  pending_count: whole('findings that the sweep or an expiry repairs'),
  pending: Type.Array(Finding, { description: 'the first 100 of them' }),
});
export const RemovalsConfirmed = Type.Object({
  success,
  confirmed: whole('pods that the leader removes next'),
});

export const ErrorAnswer = Type.Object(
  {
    success: Type.Literal(false),
    error: Type.String({ description: 'one sentence: what failed, why, what to do' }),
    code: Type.String({ description: 'stable, see docs/errors.md' }),
    problems: Type.Optional(Type.Array(Type.String())),
  },
  { description: 'an error' },
);

/** An error response with a known list of codes. */
export const errorOf = (...codes: [ErrorCode, ...ErrorCode[]]) =>
  Type.Object(ErrorAnswer.properties, { description: codes.join(', ') });
