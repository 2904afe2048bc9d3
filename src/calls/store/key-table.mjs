/**
 * Every Redis key, written once. `keys.ts` builds keys from this table, `scripts/embed.mjs` writes them into the Lua
 * scripts (`Key.pod_calls(pod)` becomes `P .. 'pod:calls:' .. pod`), and the audit recognises keys by it.
 *
 * `{...}` stands for one value, see `keyParameters`. A key has no TTL, except where `ttl` says `required` or `optional`.
 * The first pattern that fits a key is the one that counts.
 */
export const keyTable = /** @type {const} */ ({
  tierConfig: { pattern: 'tier:config', types: ['string'] },
  /** The waiting rules of the tier configuration. A key of its own: version 0.1 rejects a tier configuration that has them. */
  tierHold: { pattern: 'tier:hold', types: ['string'] },
  tierVersion: { pattern: 'tier:version', types: ['string'] },
  merchantConfig: { pattern: 'merchant:config', types: ['hash'] },
  dataVersion: { pattern: 'data:version', types: ['string'] },
  /** The record of the leader election, unless the lock is a Kubernetes Lease. */
  leader: { pattern: 'leader', types: ['hash'] },
  leaderEpoch: { pattern: 'leader:epoch', types: ['string'] },
  fence: { pattern: 'fence', types: ['string'] },
  /** The last second in which a router reached the store, and the grace after a time in which none did. */
  alive: { pattern: 'alive', types: ['string'] },
  /** A small write whose replication shows that earlier writes are replicated too. */
  replication: { pattern: 'replication', types: ['string'], ttl: 'required' },
  /** The replication id of the master, the number of its generation, and when that began (ms). */
  generation: { pattern: 'generation', types: ['string'] },
  /** Pool id to kind: `exclusive`, `shared:N`, `label` or `gone`. */
  pools: { pattern: 'pools', types: ['hash'] },
  events: { pattern: 'events', types: ['stream'] },
  /** Rare events, kept for longer than `events` keeps them. */
  journal: { pattern: 'journal', types: ['stream'] },
  history: { pattern: 'history', types: ['stream'] },
  /** When each pod last reported; when a pod counts as silent; pods blocked for silence; since when silence counts. */
  reported: { pattern: 'reported', types: ['zset'] },
  reportedDue: { pattern: 'reported:due', types: ['zset'] },
  reportedSilent: { pattern: 'reported:silent', types: ['set'] },
  reportedSince: { pattern: 'reported:since', types: ['string'] },
  /** Pods that callers could not connect to, by the end of their block. */
  flapping: { pattern: 'flapping', types: ['zset'] },
  /** Draining pods by the end of their mark. */
  drains: { pattern: 'drains', types: ['zset'] },
  removalsHeld: { pattern: 'removals:held', types: ['set'] },
  removalsConfirmed: { pattern: 'removals:confirmed', types: ['set'] },
  /** Merchant to `max_calls`, and the live calls of a merchant that has such a limit. */
  limits: { pattern: 'limits', types: ['hash'] },
  limited: { pattern: 'limits:{merchant}', types: ['set'] },
  /** Queues that have waiting calls, and waiting calls by the time at which they expire or count as abandoned. */
  waitingQueues: { pattern: 'waiting:queues', types: ['set'] },
  waitingDue: { pattern: 'waiting:due', types: ['zset'] },
  /** A queue: its rules, and its calls by arrival. The queue '' is shared by all merchants without a configuration. */
  waitingQueue: { pattern: 'waiting:queue:{merchant}', types: ['hash'], ttl: 'optional' },
  waitingCalls: { pattern: 'waiting:calls:{merchant}', types: ['zset'] },
  /** Pool and priority to the highest start tag served: the tag of a queue that enters. */
  waitingTags: { pattern: 'waiting:tags', types: ['hash'] },
  /** A waiting call that was released: a request that was on its way does not queue it again. */
  waitReleased: { pattern: 'waiting:released:{sid}', types: ['string'], ttl: 'required' },
  podMetadata: { pattern: 'pod:metadata', types: ['hash'] },
  podTier: { pattern: 'pod:tier:{pod}', types: ['string'] },
  /** An operator may set this mark by hand, without a TTL. */
  podDraining: { pattern: 'pod:draining:{pod}', types: ['string'], ttl: 'optional' },
  podSuspended: { pattern: 'pod:suspended:{pod}', types: ['string'] },
  /** Live calls of a pod by lease deadline: the load of a pod is the size of this set. */
  podCalls: { pattern: 'pod:calls:{pod}', types: ['zset'] },
  /** The pod as operators see it: status, uid, last call. */
  pod: { pattern: 'pod:{pod}', types: ['hash'] },
  /** The latest live call of a pod. */
  lease: { pattern: 'lease:{pod}', types: ['string'], ttl: 'required' },
  call: { pattern: 'call:{sid}', types: ['hash'], ttl: 'required' },
  tombstones: { pattern: 'tombstones:{slot}', types: ['hash'], ttl: 'required' },
  assigned: { pattern: '{pool}:assigned', types: ['set'] },
  available: { pattern: '{tierPool}:available', types: ['set', 'zset'] },
  /** `available` of a merchant pool. */
  merchantPods: { pattern: '{merchantPool}:pods', types: ['set'] },
  /** Queues that may have a pod of the pool, the next one first. */
  waiting: { pattern: '{pool}:waiting', types: ['zset'] },
  /** Live calls of a pool by lease deadline: the union over all pools is the index of all calls. */
  poolCalls: { pattern: '{pool}:calls', types: ['zset'] },
  /** The record plane keeps outcomes here while PostgreSQL is unreachable. */
  recordsSpool: { pattern: 'smart_router:records:spool:{workflow}', types: ['list'] },
});

/** What the value of each parameter looks like, as the source of a regular expression. */
export const keyParameters = /** @type {const} */ ({
  pod: '[^:]+',
  merchant: '[^:]*',
  sid: '[^]*',
  slot: '\\d+',
  pool: '(?:pool|merchant):[^:]+',
  tierPool: 'pool:[^:]+',
  merchantPool: 'merchant:[^:]+',
  workflow: '[^]*',
});
