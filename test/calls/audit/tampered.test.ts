/**
 * Every kind of contradiction, made by hand in a store that was right: the audit names it, with its pod or call, and says
 * who repairs it. Where it says that the sweep or a router does, that step is run and must have repaired it.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Auditor } from '../../../src/calls/audit/auditor.js';
import type { AuditReport } from '../../../src/calls/audit/findings.js';
import { type FindingKind, findingKinds } from '../../../src/calls/audit/findings.js';
import { scripts } from '../../../src/calls/store/scripts.generated.js';
import { describeEngines, type SuiteEngine } from '../../support/engines.js';
import { holdRules, openStore, type TestStore } from '../../support/store.js';

type Redis = SuiteEngine['redis'];

/**
 * Two gold pods, one of them with call A; a basic pod with S1, of shop, which has a limit, and S2; an idle one of a merchant; W1
 * and W2 of acme, which wait for a pool without pods.
 */
interface Scene {
  redis: Redis;
  store: TestStore;
  busy: string;
  free: string;
}

interface Tampering {
  kind: FindingKind;
  list: 'violations' | 'pending';
  /** What the sentence must name. */
  names: (scene: Scene) => string;
  by: (scene: Scene) => Promise<unknown>;
}

const hourMs = 3_600_000;
const later = () => Date.now() + hourMs;
const kinds = (basic: string) => ['pool:gold', 'exclusive', 'pool:basic', basic, 'merchant:vip', 'exclusive'];

const tamperings: Tampering[] = [
  {
    kind: 'unknown_key',
    list: 'pending',
    names: () => 'key voice:notes (string)',
    by: ({ redis }) => redis.set('voice:notes', 'x'),
  },
  {
    kind: 'wrong_type',
    list: 'violations',
    names: ({ free }) => `pod:calls:${free} is a string`,
    by: ({ redis, free }) => redis.set(`voice:pod:calls:${free}`, 'x'),
  },
  {
    kind: 'no_end',
    list: 'violations',
    names: () => 'call:A has no time to live',
    by: ({ redis }) => redis.persist('voice:call:A'),
  },
  {
    kind: 'vanishes',
    list: 'violations',
    names: ({ free }) => `pod:tier:${free} vanishes`,
    by: ({ redis, free }) => redis.pexpire(`voice:pod:tier:${free}`, hourMs),
  },
  {
    kind: 'two_calls',
    list: 'violations',
    names: ({ busy }) => `1: exclusive pod ${busy} of pool:gold has 2 calls`,
    by: async ({ redis, busy }) => {
      const until = later();
      await redis.zadd(`voice:pod:calls:${busy}`, until, 'B');
      await redis.zadd('voice:pool:gold:calls', until, 'B');
      await redis.copy('voice:call:A', 'voice:call:B');
    },
  },
  {
    kind: 'over_limit',
    list: 'violations',
    names: () => '3: pod basic-0 of pool:basic has 2 calls, max 1',
    by: async ({ redis }) => {
      // Given long after the last change of the limits.
      await redis.hset('voice:call:S2', 'allocated_at', new Date(Date.now() + 10_000).toISOString());
      await redis.hset('voice:pools', 'pool:basic', 'shared:1');
    },
  },
  {
    kind: 'lowered_limit',
    list: 'pending',
    names: () => '3: pod basic-0 of pool:basic has 2 calls, max 1',
    by: async ({ redis }) => {
      // Handed over to a waiting call before the change; its caller picked up the pod after it.
      const fence = String((Date.now() + 10_000) * 1000);
      await redis.mset('voice:fence', fence);
      await redis.hset('voice:call:S2', 'fence', fence);
      await redis.hset('voice:pools', 'pool:basic', 'shared:1');
    },
  },
  {
    kind: 'lowered_limit',
    list: 'pending',
    names: () => '3: pod basic-0 of pool:basic has 2 calls, max 1',
    by: ({ store }) => store.connection.run('setTiers', ['x', 'replace', '', 'test', ...kinds('shared:1')]),
  },
  {
    kind: 'two_pods',
    list: 'violations',
    names: ({ free }) => free,
    by: ({ redis, free }) => redis.zadd(`voice:pod:calls:${free}`, later(), 'A'),
  },
  {
    kind: 'no_record',
    list: 'pending',
    names: ({ busy }) => `2: call A on ${busy} has no record`,
    by: ({ redis }) => redis.del('voice:call:A'),
  },
  {
    kind: 'orphan_record',
    list: 'violations',
    names: ({ busy }) => `2: the record of call A names ${busy}, which does not have the call`,
    by: ({ redis, busy }) => redis.del(`voice:pod:calls:${busy}`),
  },
  {
    kind: 'earlier_router',
    list: 'pending',
    names: ({ free }) => `2: the record of call old names ${free}`,
    by: async ({ redis, free }) => {
      await redis.hset('voice:call:old', 'pod_name', free);
      await redis.pexpire('voice:call:old', hourMs);
    },
  },
  {
    kind: 'past_lease',
    list: 'pending',
    names: ({ busy }) => `8: call A on ${busy} is`,
    by: async ({ redis, busy }) => {
      for (const key of [`voice:pod:calls:${busy}`, 'voice:pool:gold:calls']) await redis.zadd(key, 1, 'A');
    },
  },
  {
    kind: 'fence_ahead',
    list: 'violations',
    names: () => 'call A has fence',
    by: ({ redis }) => redis.del('voice:fence'),
  },
  {
    kind: 'same_fence',
    list: 'violations',
    names: () => 'have the same fence',
    by: async ({ redis }) =>
      redis.hset('voice:call:A', 'fence', (await redis.hget('voice:call:S1', 'fence')) ?? ''),
  },
  {
    kind: 'broken_record',
    list: 'violations',
    names: () => 'call A has no allocated_at',
    by: ({ redis }) => redis.hdel('voice:call:A', 'allocated_at'),
  },
  {
    kind: 'left_behind',
    list: 'violations',
    names: () => 'pod gone is not registered but has keys',
    by: ({ redis }) => redis.hset('voice:pod:gone', 'status', 'available'),
  },
  {
    kind: 'left_to_expire',
    list: 'pending',
    names: () => 'pod gone is not registered but has keys',
    by: ({ redis }) => redis.set('voice:lease:gone', 'old', 'PX', hourMs),
  },
  {
    kind: 'wrong_pool',
    list: 'violations',
    names: ({ free }) => `pod ${free} has tier pool:gold but is assigned to`,
    by: ({ redis, free }) => redis.sadd('voice:pool:basic:assigned', free),
  },
  {
    kind: 'no_such_pool',
    list: 'violations',
    names: ({ free }) => `pod ${free} is in pool:gold, which does not exist`,
    by: ({ redis }) => redis.hdel('voice:pools', 'pool:gold'),
  },
  {
    kind: 'assigned_unregistered',
    list: 'violations',
    names: () => 'pool:gold has the unregistered pod ghost assigned',
    by: ({ redis }) => redis.sadd('voice:pool:gold:assigned', 'ghost'),
  },
  {
    kind: 'pool_unknown',
    list: 'violations',
    names: () => 'pool:silver has keys but is not configured',
    by: ({ redis }) => redis.zadd('voice:pool:silver:calls', later(), 'A'),
  },
  {
    kind: 'index_differs',
    list: 'violations',
    names: () => '4: call A is on its pod but not in',
    by: ({ redis }) => redis.del('voice:pool:gold:calls'),
  },
  {
    kind: 'index_extra',
    list: 'violations',
    names: () => '4: the index of pool:gold has call ghost, which is on none of its pods',
    by: ({ redis }) => redis.zadd('voice:pool:gold:calls', 1, 'ghost'),
  },
  {
    kind: 'available_type',
    list: 'violations',
    names: () => 'available of pool:gold: is a zset',
    by: async ({ redis, free }) => {
      await redis.del('voice:pool:gold:available');
      await redis.zadd('voice:pool:gold:available', 0, free);
    },
  },
  {
    kind: 'available_stranger',
    list: 'violations',
    names: () => 'available of pool:gold: has ghost, a pod of nowhere',
    by: ({ redis }) => redis.sadd('voice:pool:gold:available', 'ghost'),
  },
  {
    kind: 'available_blocked',
    list: 'violations',
    names: ({ free }) => `available of pool:gold: 6: has ${free}, which is draining`,
    by: async ({ redis, store, free }) => {
      await store.calls.drain(free);
      await redis.sadd('voice:pool:gold:available', free);
    },
  },
  {
    kind: 'available_by_hand',
    list: 'pending',
    names: ({ free }) => `available of pool:gold: 6: has ${free}, which is draining`,
    by: ({ redis, free }) => redis.set(`voice:pod:draining:${free}`, 'yes'),
  },
  {
    kind: 'available_busy',
    list: 'violations',
    names: ({ busy }) => `available of pool:gold: 4: has ${busy}, which has a call`,
    by: ({ redis, busy }) => redis.sadd('voice:pool:gold:available', busy),
  },
  {
    kind: 'available_score',
    list: 'violations',
    names: () => 'available of pool:basic: 4: has basic-0 with score 0, it has 2 calls',
    by: ({ redis }) => redis.zadd('voice:pool:basic:available', 0, 'basic-0'),
  },
  {
    kind: 'not_available',
    list: 'pending',
    names: () => 'available of merchant:vip: 8: lacks vip-0',
    by: ({ redis }) => redis.del('voice:merchant:vip:pods'),
  },
  {
    kind: 'not_handed_over',
    list: 'violations',
    names: () => '12: pod vip-0 of merchant:vip is available while calls of acme wait for it',
    by: async ({ redis }) => {
      await redis.hset('voice:waiting:queue:acme', 'chain', 'merchant:vip');
      await redis.rename('voice:merchant:none:waiting', 'voice:merchant:vip:waiting');
    },
  },
  {
    kind: 'waiting_with_pod',
    list: 'violations',
    names: ({ busy }) => `14: call W1 waits, but has pod ${busy}`,
    by: ({ redis, busy }) => redis.hset('voice:call:W1', 'pod_name', busy),
  },
  {
    kind: 'not_queued',
    list: 'violations',
    names: () => '14: call W1 waits, but is not in the queue of acme',
    by: ({ redis }) => redis.zrem('voice:waiting:calls:acme', 'W1'),
  },
  {
    kind: 'wrong_entry',
    list: 'violations',
    names: () => '14: the queue of acme has call ghost, which does not wait',
    by: ({ redis }) => redis.zadd('voice:waiting:calls:acme', 9e15, 'ghost'),
  },
  {
    kind: 'wrong_entry',
    list: 'violations',
    names: () => '14: the queue of merchants without a configuration has call W1, which waits in another one',
    by: ({ redis }) => redis.zadd('voice:waiting:calls:', 1, 'W1'),
  },
  {
    kind: 'listed',
    list: 'violations',
    names: () => 'the queue of acme is at its limit, but is listed for merchant:none',
    by: ({ redis }) => redis.hset('voice:limits', 'acme', 0),
  },
  {
    kind: 'not_listed',
    list: 'violations',
    names: () => 'the queue of acme has calls, but is not listed for merchant:none',
    by: ({ redis }) => redis.del('voice:merchant:none:waiting'),
  },
  {
    kind: 'listed_score',
    list: 'violations',
    names: () => 'the queue of acme is listed for merchant:none with score 5',
    by: ({ redis }) => redis.zadd('voice:merchant:none:waiting', 5, 'acme'),
  },
  {
    kind: 'over_max_calls',
    list: 'violations',
    names: () => '15: merchant shop has 1 calls, max_calls 0: S1',
    by: async ({ redis }) => {
      await redis.hset('voice:call:S1', 'allocated_at', new Date(later()).toISOString());
      await redis.hset('voice:limits', 'shop', 0);
    },
  },
  {
    kind: 'lowered_max_calls',
    list: 'pending',
    names: () => '15: merchant shop has 1 calls, max_calls 0: S1',
    by: ({ store }) => store.connection.run('setMerchant', ['shop', '{}', 'test', 0]),
  },
  {
    kind: 'limit_extra',
    list: 'violations',
    names: () => '15: the limit of shop counts call ghost, which has ended',
    by: ({ redis }) => redis.sadd('voice:limits:shop', 'ghost'),
  },
  {
    kind: 'limit_missing',
    list: 'violations',
    names: () => '15: the limit of shop does not count call S1',
    by: ({ redis }) => redis.srem('voice:limits:shop', 'S1'),
  },
  {
    kind: 'mirror',
    list: 'pending',
    names: ({ free }) => `pod ${free} has status allocated, expected available`,
    by: ({ redis, free }) => redis.hset(`voice:pod:${free}`, 'status', 'allocated'),
  },
];

describe('the table of tamperings', () => {
  it('has one for every kind', () => {
    expect(new Set(tamperings.map(({ kind }) => kind))).toEqual(new Set(findingKinds));
  });
});

describeEngines('the audit of a tampered store', (engine) => {
  let store: TestStore;
  let scene: Scene;
  beforeEach(async () => {
    store = await openStore(engine.url);
    await store.register(['gold-0', 'gold-1'], 'pool:gold');
    await store.register(['basic-0'], 'pool:basic');
    await store.register(['vip-0'], 'merchant:vip');
    await store.connection.run('setMerchant', ['shop', '{}', 'test', 2]);
    const busy = (await store.allocate('A', ['pool:gold']))?.podName ?? '';
    const hold = holdRules({ queue: 'acme', maxWaitMs: hourMs });
    for (const sid of ['W1', 'W2']) await store.ask(sid, ['merchant:none'], { merchantId: 'acme', hold });
    await store.allocate('S1', ['pool:basic'], { merchantId: 'shop' });
    await store.allocate('S2', ['pool:basic']);
    scene = { redis: engine.redis, store, busy, free: busy === 'gold-0' ? 'gold-1' : 'gold-0' };
  });
  afterEach(() => store.close());

  const audit = () => new Auditor(store.connection).audit();
  const found = (report: AuditReport, { kind, list }: Tampering) =>
    report[list].filter((finding) => finding.kind === kind);

  it('finds nothing in an intact store, and counts what it read', async () => {
    const { took_ms, ...report } = await audit();
    expect(report).toEqual({
      complete: true,
      looked_at: { pools: 3, pods: 4, calls: 3, keys: expect.any(Number) },
      violation_count: 0,
      violations: [],
      pending_count: 0,
      pending: [],
    });
    expect(took_ms).toBeGreaterThanOrEqual(0);
  });

  it.each(tamperings)('finds $kind, in $list', async (tampering) => {
    await tampering.by(scene);
    const messages = found(await audit(), tampering).map(({ message }) => message);
    expect(messages.join('\n')).toContain(tampering.names(scene));
    // What it is, and then what to do.
    for (const message of messages) expect(message).toMatch(/^[^\n]+: [a-z`][^\n]{20,}$/);
    if (messages.some((message) => message.includes('the sweep'))) {
      await store.sweep();
      expect(found(await audit(), tampering)).toEqual([]);
    }
    if (messages.some((message) => message.includes('every router repairs it'))) {
      await store.waits.serve();
      expect(found(await audit(), tampering)).toEqual([]);
    }
  });

  it.each([
    {
      broken: 'allocate is not idempotent',
      script: 'allocate' as const,
      line: 'if owner then',
      becomes: 'if false then',
      args: ['A', '', 'twilio/v2/t', hourMs, hourMs, 30_000, '', '', '', '', 'pool:gold'],
      kind: 'two_pods',
    },
    {
      broken: 'drain leaves the pod in available',
      script: 'drain' as const,
      line: 'local _, load = settle(pod)',
      becomes: 'local load = load_of(pod)',
      args: ['vip-0', hourMs],
      kind: 'available_blocked',
    },
    {
      broken: 'a released call leaves its record',
      script: 'release' as const,
      line: "call('DEL', record_key, P .. 'lease:' .. pod)",
      becomes: "call('DEL', P .. 'lease:' .. pod)",
      args: ['A', '', 30_000, '', ''],
      kind: 'orphan_record',
    },
  ])('finds what a faulty operation leaves: $broken', async ({ script, line, becomes, args, kind }) => {
    const whole: string = scripts[script];
    expect(whole).toContain(line);
    await engine.redis.eval(
      whole.replaceAll(line, () => becomes),
      1,
      'voice:',
      '',
      ...args,
    );
    expect((await audit()).violations.map((finding) => finding.kind)).toContain(kind);
  });

  it('changes nothing', async () => {
    // Those after which another one could not be made.
    const last = ['wrong_type', 'available_type', 'not_handed_over'];
    for (const { by, kind } of tamperings) if (!last.includes(kind)) await by(scene);
    const before = await engine.redis.info('persistence');
    const changes = (info: string) => /rdb_changes_since_last_save:(\d+)/.exec(info)?.[1];
    await audit();
    expect(changes(await engine.redis.info('persistence'))).toBe(changes(before));
  });

  it('lists a hundred and counts them all', async () => {
    const ghosts = Array.from({ length: 250 }, (_, i) => `ghost-${i}`);
    await engine.redis.sadd('voice:pool:gold:assigned', ...ghosts);
    const report = await audit();
    expect(report.violation_count).toBe(250);
    expect(report.violations).toHaveLength(100);
    expect(report.violations.every(({ pod_name }) => pod_name?.startsWith('ghost-'))).toBe(true);
  });
});
