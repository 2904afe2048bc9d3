/**
 * The shapes of requests and answers. The same objects validate, serialise and become OpenAPI. A field's
 * description completes the sentence "field must be ...", which is what a caller with a wrong value reads.
 */
import Type from 'typebox';
import type { ErrorCode } from '../errors.js';
import { flag, orNull, text, texts, whole } from './fields.js';
import { MAX_SEGMENT_LENGTH } from './providers/ws-url.js';
import { RecordsState } from './record-schemas.js';

/** Control characters (C0, DEL, C1) and lone halves of surrogate pairs. */
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
/** `usual` is what counts without one: it is told, not filled in. */
const segment = (what: string, max: number, usual?: string) =>
  Type.String({
    ...(usual === undefined ? {} : { default: usual }),
    minLength: 1,
    maxLength: max,
    pattern: segmentPattern,
    description: `${what}: a string of 1 to ${max} characters without control characters`,
  });
const fence = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'the fence from the answer of allocate: a whole number',
});
const success = Type.Literal(true);
const givenFence = whole(
  'names this allocation: pass it with renew and release, and a late one changes nothing',
);
const leaseEnd = text('until when the call holds its pod without renewal');
const sourcePool = text('the pool that the pod is of: `pool:{tier}` or `merchant:{id}`');

export const AllocateBody = Type.Object(
  {
    call_sid: callSid,
    merchant_id: Type.Optional(name('the id of a merchant')),
    provider: Type.Optional(segment('the name of the telephony provider', 64, 'twilio')),
    flow: Type.Optional(segment('the flow of the conversation', 64, 'v2')),
    template: Type.Optional(
      segment('the template of the conversation', MAX_SEGMENT_LENGTH, 'order-confirmation'),
    ),
  },
  { description: 'a JSON object with call_sid' },
);

export const Allocated = Type.Object({
  success,
  pod_name: text('the pod that serves the call'),
  ws_url: text('where the provider streams the call to'),
  source_pool: sourcePool,
  allocated_at: text('since when the call has the pod'),
  lease_expires_at: leaseEnd,
  fence: givenFence,
  was_existing: flag('the call had this pod already'),
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
          'connect_failed, if the caller could not connect to the pod: after three failed calls in a row the pod is set back',
      }),
    ),
  },
  { description: 'a JSON object with call_sid' },
);
export const Released = Type.Object({
  success,
  pod_name: text('the pod that the call had'),
  released_to_pool: orNull(
    text('the pool in which the pod is available again; null when it takes no calls (draining, not ready)'),
  ),
  was_draining: flag('the pod drains'),
});
export const Renewed = Type.Object({ success, lease_expires_at: leaseEnd });

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
          'a time of the router in milliseconds: `at` of the answer to its last report plus the time since',
      }),
    ),
    interval_ms: Type.Optional(
      Type.Integer({
        minimum: 100,
        maximum: 600_000,
        description:
          'milliseconds between two reports, 100 to 600,000: silent for three of them (at least 15 s), the pod gets no new calls until it reports',
      }),
    ),
  },
  { description: 'a JSON object with calls' },
);
export const Reported = Type.Object({
  at: Type.Integer({ description: "the store's time in milliseconds" }),
  renewed: texts('calls whose lease was moved'),
  adopted: texts('calls that nobody knew and that are on this pod from now on'),
  ended: texts('calls that the pod has not named for `REPORT_GRACE`'),
  conflicts: texts('calls to drop: another pod owns them, they have ended, or the pod is full'),
  fences: Type.Record(Type.String(), Type.Integer(), {
    description: 'the fence of every renewed and adopted call',
  }),
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
const stillCalls = whole('live calls on the pod');
const message = text('the same in a sentence for people');
export const Drained = Type.Object({
  success,
  pod_name: text('the pod'),
  has_active_call: flag('whether there is a live call on it'),
  active_calls: stillCalls,
  message,
  drain_expires_at: text('when the drain ends by itself, unless it is started anew'),
});
export const UndrainBody = Type.Object(
  { pod_name: podName, uid: Type.Optional(podUid) },
  { description: 'a JSON object with pod_name' },
);
export const Undrained = Type.Object({
  success,
  pod_name: text('the pod'),
  active_calls: stillCalls,
  message,
});

export const PodParams = Type.Object({ pod: podName });
export const CallParams = Type.Object({ sid: callSid });
export const MerchantParams = Type.Object({ id: name('the id of a merchant') });

export const Pod = Type.Object({
  pod_name: text('its name'),
  tier: text('its tier, or `merchant:{id}`'),
  is_draining: flag('it drains or terminates: no new calls'),
  draining_until: orNull(text('when the drain ends by itself')),
  blocked_by: orNull(
    text(
      'why it takes no new call: `draining`, `terminating`, `not_ready`, `awaiting_report`, `flapping` (set back because calls failed on it; used only when no other pod is free), `unconfirmed`, `unreadable` (a key of it is of a wrong type); null if it does',
    ),
  ),
  has_active_lease: flag('whether it has a live call'),
  lease_call_sid: orNull(text('the latest of its live calls')),
  calls: texts('its live calls'),
  leases: Type.Array(
    Type.Object({ call_sid: text('the call'), lease_expires_at: text('until when it holds the pod') }),
    { description: 'the same calls with their leases' },
  ),
  last_report_at: orNull(text('when it last reported; null if never')),
  uid: text('the UID that the cluster gave it; empty where the source of pods has none'),
  started_at: orNull(text('since when its container runs; null where the source of pods does not know')),
});
export const Call = Type.Object({
  call_sid: text("the provider's call id"),
  pod_name: text('the pod that serves it'),
  source_pool: sourcePool,
  merchant_id: text('its merchant; empty without one'),
  provider: text('its telephony provider'),
  flow: text('its flow'),
  template: text('its template'),
  allocated_at: text('since when it has the pod'),
  renewed_at: orNull(text('when it was last renewed or reported; null if never')),
  lease_expires_at: leaseEnd,
  fence: givenFence,
});

const cursor = Type.Union([Type.String(), Type.Null()], {
  description: 'pass it as ?cursor= to read on; null at the end',
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
      pattern: '^(pool|merchant):[A-Za-z0-9_.-]{1,64},[0-9]{1,19}$',
      description: 'the cursor of an earlier page',
    }),
  ),
  limit: Type.Optional(
    Type.String({
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      default: '100',
      description: 'a whole number from 1 to 1000; a page may be a little larger',
    }),
  ),
});
export const PodPage = Type.Object({ pods: Type.Array(Pod, { description: 'pods' }), cursor });
export const CallPage = Type.Object({ calls: Type.Array(Call, { description: 'live calls' }), cursor });

export const Pool = Type.Object({
  type: text('`exclusive`, `shared`, or `gone` (its tier was deleted and its pods wait to be moved)'),
  assigned: whole('its pods'),
  available: whole('pods that could take a call now'),
  active_calls: whole('live calls on its pods'),
  capacity: whole('calls that its pods could have at once'),
  unreadable_key: Type.Optional(
    text('the key of its pods, only where that is of a wrong type and the counts are not known'),
  ),
});
const lastError = (what: string) => orNull(text(`${what}; null without one`));
const Loop = Type.Object({
  name: text('its name'),
  running: flag('whether a round is under way or awaited'),
  rounds: whole('rounds since it started'),
  crashes: whole('rounds that failed'),
  last_round_at: orNull(text('when the last round ended')),
  last_error: lastError('why the last round failed'),
  counts: Type.Record(Type.String(), Type.Number(), { description: 'what the last round did' }),
});
export const Status = Type.Object({
  status: Type.Union([Type.Literal('up'), Type.Literal('down')], {
    description: 'whether the store answers',
  }),
  version: text('the version of this router'),
  pools: Type.Record(Type.String(), Pool, { description: 'by tier, or `merchant:{id}`' }),
  active_calls: orNull(whole('live calls; null while the store does not answer')),
  removals_held: orNull(whole('pods that the removal brake holds; null while the store does not answer')),
  is_leader: flag('this replica leads'),
  leader: orNull(text('who leads; null if nobody, or it is not known')),
  election: Type.Object(
    {
      lock: text('what decides who leads'),
      last_error: lastError('why the lock could not be read or written'),
    },
    { description: 'how the leader is found' },
  ),
  loops: Type.Array(Loop, { description: 'what this replica does in the background' }),
  records: Type.Union([RecordsState, Type.Null()], { description: 'null without `DATABASE_URL`' }),
  tier_version: whole('the version of the tier configuration'),
  tier_config_differs: flag('`TIER_CONFIG` of this replica is not what the store holds'),
  replicas_differ: Type.Array(Type.String(), {
    description: 'live replicas whose `POD_SOURCE`, `STATIC_PODS` or `TIER_CONFIG` is not that of this one',
  }),
  store_error: orNull(text('why the store does not answer, or why the pools cannot be read')),
});

export const ConfirmBody = Type.Object({}, { description: 'a JSON object, or nothing' });
export const Removals = Type.Object({
  held: Type.Array(Type.String(), { description: 'pods that the removal brake holds' }),
  confirmed: Type.Array(Type.String(), { description: 'those of them that the leader removes next' }),
});
const Finding = Type.Object({
  kind: text('a stable word for what was found'),
  pod_name: orNull(text('the pod it is about')),
  call_sid: orNull(text('the call it is about')),
  pool: orNull(text('the pool it is about')),
  message: text('what contradicts what, and what to do or who repairs it'),
});
export const Audit = Type.Object({
  complete: flag('false: it ran out of time, or the router stops'),
  took_ms: whole('how long it took'),
  looked_at: Type.Object(
    { pools: whole('pools'), pods: whole('pods'), calls: whole('calls'), keys: whole('keys of the store') },
    { description: 'how much was looked at' },
  ),
  violation_count: whole('what must never be; 0 in a healthy system'),
  violations: Type.Array(Finding, { description: 'the first 100 of them' }),
  pending_count: whole('what the sweep, or time, puts right'),
  pending: Type.Array(Finding, { description: 'the first 100 of them' }),
});
export const RemovalsConfirmed = Type.Object({
  success,
  confirmed: whole('pods that are removed next'),
});

export const Tiers = Type.Object({
  tiers: Type.Record(
    Type.String(),
    Type.Object({
      type: text('`exclusive` or `shared`'),
      target: whole('how many pods it should have'),
      max_concurrent: Type.Optional(whole('calls that a pod of a shared tier may have at once')),
    }),
    { description: 'by name' },
  ),
  default_chain: texts('the tiers that a call tries, in order'),
  version: whole('goes up with every change; also the `ETag`'),
  warnings: Type.Optional(texts('what was accepted and may not be meant; only of a `PUT`')),
});

export const skippedSteps = Type.Array(
  Type.Object({ step: text('the step as it was configured'), reason: text('why it is left out') }),
  { description: 'steps of the configuration that are no pool' },
);
export const Merchant = Type.Object({
  merchant_id: text('the merchant'),
  tier: Type.Optional(text('where the default chain begins for it, if that was configured')),
  pool: Type.Optional(text('the pool of its own that comes first, if it has one')),
  fallback: Type.Optional(texts('what replaces the default chain, if that was configured')),
  chain: texts('the pools a call of this merchant tries, in order'),
  skipped: skippedSteps,
});
export const Merchants = Type.Object({
  merchants: Type.Array(Merchant, { description: 'all that are configured, by id' }),
});

export const ErrorAnswer = Type.Object(
  {
    success: Type.Literal(false),
    error: Type.String({ description: 'one sentence: what is wrong and what would be right' }),
    code: Type.String({ description: 'stable, see docs/errors.md' }),
    problems: Type.Optional(Type.Array(Type.String())),
  },
  { description: 'an error' },
);

/** An error of which it is known which codes it may have. */
export const errorOf = (...codes: [ErrorCode, ...ErrorCode[]]) =>
  Type.Object(ErrorAnswer.properties, { description: codes.join(', ') });
