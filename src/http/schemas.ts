/**
 * The shapes of requests and answers. The same objects validate, serialise and become OpenAPI. A field's
 * description completes the sentence "field must be ...", which is what a caller with a wrong value reads.
 */
import Type from 'typebox';
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
const segment = (what: string, max: number) =>
  Type.String({
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
const sids = Type.Array(Type.String());

export const AllocateBody = Type.Object(
  {
    call_sid: callSid,
    merchant_id: Type.Optional(name('the id of a merchant')),
    provider: Type.Optional(segment('the name of the telephony provider', 64)),
    flow: Type.Optional(segment('the flow of the conversation', 64)),
    template: Type.Optional(segment('the template of the conversation', MAX_SEGMENT_LENGTH)),
  },
  { description: 'a JSON object with call_sid' },
);

export const Allocated = Type.Object({
  success,
  pod_name: Type.String(),
  ws_url: Type.String(),
  source_pool: Type.String(),
  allocated_at: Type.String(),
  lease_expires_at: Type.String(),
  fence: Type.Integer(),
  was_existing: Type.Boolean(),
});

export const CallBody = Type.Object(
  { call_sid: callSid, fence: Type.Optional(fence) },
  { description: 'a JSON object with call_sid' },
);
export const Released = Type.Object({
  success,
  pod_name: Type.String(),
  released_to_pool: Type.Union([Type.String(), Type.Null()]),
  was_draining: Type.Boolean(),
});
export const Renewed = Type.Object({ success, lease_expires_at: Type.String() });

export const ReportBody = Type.Object(
  {
    calls: Type.Array(callSid, { maxItems: 1000, description: 'a list of at most 1000 call ids' }),
    uid: Type.Optional(segment('the uid of the pod', 128)),
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
  },
  { description: 'a JSON object with calls' },
);
export const Reported = Type.Object({
  at: Type.Integer({ description: "the store's time in milliseconds" }),
  renewed: sids,
  adopted: sids,
  ended: sids,
  conflicts: sids,
  fences: Type.Record(Type.String(), Type.Integer(), {
    description: 'the fence of every renewed and adopted call',
  }),
});

export const DrainBody = Type.Object(
  {
    pod_name: podName,
    wait: Type.Optional(
      Type.String({ maxLength: 32, description: 'a duration like 30s or 5m, at most 24h' }),
    ),
  },
  { description: 'a JSON object with pod_name' },
);
export const Drained = Type.Object({
  success,
  pod_name: Type.String(),
  has_active_call: Type.Boolean(),
  active_calls: Type.Integer(),
  message: Type.String(),
});
export const UndrainBody = Type.Object({ pod_name: podName }, { description: 'a JSON object with pod_name' });
export const Undrained = Type.Object({
  success,
  pod_name: Type.String(),
  active_calls: Type.Integer(),
  message: Type.String(),
});

export const PodParams = Type.Object({ pod: podName });
export const CallParams = Type.Object({ sid: callSid });
export const MerchantParams = Type.Object({ id: name('the id of a merchant') });

export const Pod = Type.Object({
  pod_name: Type.String(),
  tier: Type.String(),
  is_draining: Type.Boolean(),
  draining_until: Type.Union([Type.String(), Type.Null()]),
  blocked_by: Type.Union([Type.String(), Type.Null()], {
    description:
      'why it takes no new call: draining, terminating, not_ready, awaiting_report, unconfirmed, or null',
  }),
  has_active_lease: Type.Boolean(),
  lease_call_sid: Type.Union([Type.String(), Type.Null()]),
  calls: sids,
  leases: Type.Array(Type.Object({ call_sid: Type.String(), lease_expires_at: Type.String() })),
  uid: Type.String(),
  started_at: Type.Union([Type.String(), Type.Null()], {
    description: 'since when its container runs; null where the source of pods does not know',
  }),
});
export const Call = Type.Object({
  call_sid: Type.String(),
  pod_name: Type.String(),
  source_pool: Type.String(),
  merchant_id: Type.String(),
  provider: Type.String(),
  flow: Type.String(),
  template: Type.String(),
  allocated_at: Type.String(),
  renewed_at: Type.Union([Type.String(), Type.Null()]),
  lease_expires_at: Type.String(),
  fence: Type.Integer(),
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
      description: 'a whole number from 1 to 1000; a page may be a little larger',
    }),
  ),
});
export const PodPage = Type.Object({ pods: Type.Array(Pod), cursor });
export const CallPage = Type.Object({ calls: Type.Array(Call), cursor });

export const Pool = Type.Object({
  type: Type.String({
    description: 'exclusive, shared, or gone (its tier was deleted and its pods wait to be moved)',
  }),
  assigned: Type.Integer(),
  available: Type.Integer({ description: 'pods that could take a call now' }),
  active_calls: Type.Integer(),
  capacity: Type.Integer(),
});
export const Status = Type.Object({
  status: Type.Union([Type.Literal('up'), Type.Literal('down')]),
  version: Type.String(),
  pools: Type.Record(Type.String(), Pool),
  active_calls: Type.Union([Type.Integer(), Type.Null()]),
  removals_held: Type.Union([Type.Integer(), Type.Null()], {
    description: 'pods that the removal brake holds',
  }),
  is_leader: Type.Boolean(),
  leader: Type.Union([Type.String(), Type.Null()]),
  election: Type.Object({
    lock: Type.String({ description: 'what decides who leads' }),
    last_error: Type.Union([Type.String(), Type.Null()]),
  }),
  loops: Type.Array(
    Type.Object({
      name: Type.String(),
      running: Type.Boolean(),
      rounds: Type.Integer(),
      crashes: Type.Integer(),
      last_round_at: Type.Union([Type.String(), Type.Null()]),
      last_error: Type.Union([Type.String(), Type.Null()]),
      counts: Type.Record(Type.String(), Type.Number()),
    }),
  ),
  records: Type.Union([RecordsState, Type.Null()], { description: 'null without DATABASE_URL' }),
  tier_version: Type.Integer(),
  tier_config_differs: Type.Boolean({
    description: 'TIER_CONFIG of this replica is not what the store holds',
  }),
  store_error: Type.Union([Type.String(), Type.Null()]),
});

export const ConfirmBody = Type.Object({}, { description: 'a JSON object, or nothing' });
export const Removals = Type.Object({
  held: Type.Array(Type.String(), { description: 'pods that the removal brake holds' }),
  confirmed: Type.Array(Type.String(), { description: 'those of them that the leader removes next' }),
});
const Finding = Type.Object({
  kind: Type.String({ description: 'a stable word for what was found' }),
  pod_name: Type.Union([Type.String(), Type.Null()]),
  call_sid: Type.Union([Type.String(), Type.Null()]),
  pool: Type.Union([Type.String(), Type.Null()]),
  message: Type.String({ description: 'what contradicts what, and what to do or who repairs it' }),
});
export const Audit = Type.Object({
  complete: Type.Boolean({ description: 'false: it ran out of time, or the router stops' }),
  took_ms: Type.Integer(),
  looked_at: Type.Object({
    pools: Type.Integer(),
    pods: Type.Integer(),
    calls: Type.Integer(),
    keys: Type.Integer(),
  }),
  violation_count: Type.Integer({ description: 'what must never be; 0 in a healthy system' }),
  violations: Type.Array(Finding, { description: 'the first 100 of them' }),
  pending_count: Type.Integer({ description: 'what the sweep, or time, puts right' }),
  pending: Type.Array(Finding, { description: 'the first 100 of them' }),
});
export const RemovalsConfirmed = Type.Object({ success, confirmed: Type.Integer() });

export const Tiers = Type.Object({
  tiers: Type.Record(
    Type.String(),
    Type.Object({
      type: Type.String(),
      target: Type.Integer(),
      max_concurrent: Type.Optional(Type.Integer()),
    }),
  ),
  default_chain: Type.Array(Type.String()),
  version: Type.Integer(),
  warnings: Type.Optional(Type.Array(Type.String())),
});

export const Merchant = Type.Object({
  merchant_id: Type.String(),
  tier: Type.Optional(Type.String()),
  pool: Type.Optional(Type.String()),
  fallback: Type.Optional(Type.Array(Type.String())),
  chain: Type.Array(Type.String(), { description: 'the pools a call of this merchant tries, in order' }),
  skipped: Type.Array(Type.Object({ step: Type.String(), reason: Type.String() })),
});
export const Merchants = Type.Object({ merchants: Type.Array(Merchant) });

export const ErrorAnswer = Type.Object(
  {
    success: Type.Literal(false),
    error: Type.String({ description: 'one sentence: what is wrong and what would be right' }),
    code: Type.String({ description: 'stable, see docs/errors.md' }),
    problems: Type.Optional(Type.Array(Type.String())),
  },
  { description: 'an error' },
);
