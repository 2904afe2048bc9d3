/** The keys operators know keep name, type, TTL and fields; ours are written down here once. See docs/operations.md. */
import type { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { holdRules, openStore, registration, type TestStore, testTimes } from '../../support/store.js';

interface Row {
  /** Behind the prefix. */
  name: RegExp;
  type: (name: string) => string;
  /** Upper bound of the TTL; none = it never expires. */
  ttlMs?: number;
  fields?: { always: string[]; sometimes: string[] };
}

const pod = '[a-z][a-z0-9-]*';
const is = (type: string) => () => type;

/** The data model, row by row; the first match counts. */
const known: Row[] = [
  { name: /^tier:config$/, type: is('string') },
  { name: /^merchant:config$/, type: is('hash') },
  { name: /^(pool|merchant):\w+:assigned$/, type: is('set') },
  { name: new RegExp(`^pod:tier:${pod}$`), type: is('string') },
  { name: /^pool:\w+:available$/, type: (name) => (name.includes('basic') ? 'zset' : 'set') },
  { name: /^merchant:\w+:pods$/, type: is('set') },
  { name: new RegExp(`^pod:draining:${pod}$`), type: is('string'), ttlMs: testTimes.drainingTtlMs },
  {
    name: /^call:waits$/,
    type: is('hash'),
    ttlMs: testTimes.callInfoTtlMs + 60_000,
    fields: {
      always: [
        'hold',
        'queue',
        'merchant_id',
        'route',
        'saw',
        'waiting_since',
        'wait_until',
        'claim_ms',
        'grace_ms',
      ],
      sometimes: [],
    },
  },
  {
    name: /^call:.+$/,
    type: is('hash'),
    ttlMs: testTimes.callInfoTtlMs,
    fields: {
      always: ['pod_name', 'source_pool', 'merchant_id', 'allocated_at', 'fence'],
      sometimes: ['route', 'renewed_at', 'asked_again', 'missing_since', 'limited'],
    },
  },
  { name: new RegExp(`^lease:${pod}$`), type: is('string'), ttlMs: testTimes.leaseTtlMs },
  { name: /^pod:metadata$/, type: is('hash') },
  {
    name: new RegExp(`^pod:${pod}$`),
    type: is('hash'),
    fields: {
      always: ['status'],
      sometimes: [
        'allocated_call_sid',
        'allocated_at',
        'released_at',
        'source_pool',
        'uid',
        'must_report',
        'failures',
        'set_backs',
        'drained_at',
        'restarts',
      ],
    },
  },
];

/** Beside them, ours. */
const ours: Row[] = [
  { name: new RegExp(`^pod:calls:${pod}$`), type: is('zset') },
  { name: /^(pool|merchant):\w+:calls$/, type: is('zset') },
  { name: /^pools$/, type: is('hash') },
  { name: new RegExp(`^pod:suspended:${pod}$`), type: is('string') },
  { name: /^leader:epoch$/, type: is('string') },
  { name: /^reported(:due)?$/, type: is('zset') },
  { name: /^reported:since$/, type: is('string') },
  { name: /^removals:(held|confirmed)$/, type: is('set') },
  { name: /^fence$/, type: is('string') },
  { name: /^tombstones:\d+$/, type: is('hash'), ttlMs: testTimes.reportGraceMs },
  { name: /^(events|journal)$/, type: is('stream') },
  { name: /^tier:version$/, type: is('string') },
  { name: /^drains$/, type: is('zset') },
  { name: /^limits$/, type: is('hash') },
  { name: /^limits:\w+$/, type: is('set') },
  { name: /^waiting:queues$/, type: is('set') },
  { name: /^waiting:(due|calls:\w*)$/, type: is('zset') },
  { name: /^waiting:queue:\w*$/, type: is('hash') },
  { name: /^waiting:released:\w+$/, type: is('string'), ttlMs: testTimes.reportGraceMs },
  { name: /^(pool|merchant):\w+:waiting$/, type: is('zset') },
];

async function scan(redis: Redis): Promise<string[]> {
  const keys: string[] = [];
  for await (const page of redis.scanStream({ count: 500 })) keys.push(...(page as string[]));
  return [...new Set(keys)].sort();
}

/** Everything in the store that could carry a pod's name: key names, members, fields and values. */
async function everything(redis: Redis, keys: string[]): Promise<string[]> {
  const readers: Record<string, (key: string) => Promise<unknown>> = {
    string: (key) => redis.get(key),
    hash: (key) => redis.hgetall(key),
    set: (key) => redis.smembers(key),
    zset: (key) => redis.zrange(key, 0, '-1'),
  };
  const texts = keys.map(async (key) => [key, JSON.stringify(await readers[await redis.type(key)]?.(key))]);
  return (await Promise.all(texts)).flat() as string[];
}

describeEngines('keys', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  /** Every operation at least once, with something left behind by each. */
  async function live(on: TestStore): Promise<void> {
    const pods = [
      registration('gold-1', 'pool:gold', { uid: 'u1' }),
      registration('gold-2', 'pool:gold'),
      registration('gold-3', 'pool:gold', { suspended: 'not_ready' }),
      registration('basic-1', 'pool:basic'),
      registration('basic-2', 'pool:basic', { mustReport: true }),
      registration('vip-1', 'merchant:vip'),
      registration('acme-1', 'merchant:acme'),
      registration('acme-2', 'merchant:acme'),
      registration('acme-3', 'merchant:acme'),
    ];
    await on.pools.register(on.epoch, pods, { candidates: [], last: 'pool:gold' });
    await on.connection.run('setMerchant', ['acme', '{"pool":"acme"}', 'test']);
    for (const sid of ['g', 'g again']) await on.allocate(sid, ['pool:gold']);
    for (const sid of ['b1', 'b2', 'b3']) await on.allocate(sid, ['pool:basic']);
    for (const sid of ['v', 'released', 'm']) await on.allocate(sid, ['merchant:vip', 'merchant:acme']);
    await on.allocate('g', ['pool:gold']);
    await on.allocate('nothing free', ['pool:gold']);
    await on.calls.release('released');
    await on.connection.run('setMerchant', ['shop', '{"max_calls":1}', 'test', 1]);
    await on.allocate('limited', ['merchant:acme'], { merchantId: 'shop' });
    await on.ask('waits', ['pool:gold'], { hold: holdRules() });
    await on.ask('leaves', ['pool:gold'], { hold: holdRules() });
    await on.calls.release('leaves');
    await on.calls.renew('v');
    await on.calls.report('basic-1', ['b1', 'b2']);
    await on.calls.report('basic-2', ['adopted'], { intervalMs: 10_000 });
    await on.calls.drain('basic-1');
    await on.pools.suspend(on.epoch, 'terminating', ['vip-1']);
    await on.pools.suspend(on.epoch, 'unconfirmed', ['gold-3']);
    expect(await on.pools.confirmRemovals('an operator')).toBe(1);
    await on.sweep();
  }

  it('every key is one of the table, with its type, its TTL and its fields', async () => {
    await live(store);
    const unknown: string[] = [];
    const seen = new Set<Row>();
    for (const key of await scan(engine.redis)) {
      expect(key.startsWith('voice:')).toBe(true);
      const name = key.slice('voice:'.length);
      const row = [...known, ...ours].find((candidate) => candidate.name.test(name));
      if (!row) {
        unknown.push(key);
        continue;
      }
      seen.add(row);
      expect([key, await engine.redis.type(key)]).toEqual([key, row.type(name)]);
      const ttl = await engine.redis.pttl(key);
      if (row.ttlMs === undefined) expect([key, ttl]).toEqual([key, -1]);
      else {
        expect(ttl, key).toBeGreaterThan(row.ttlMs - 20_000);
        expect(ttl, key).toBeLessThanOrEqual(row.ttlMs);
      }
      if (row.fields) {
        const fields = await engine.redis.hkeys(key);
        const { always, sometimes } = row.fields;
        expect(fields, key).toEqual(expect.arrayContaining(always));
        expect([key, fields.filter((field) => ![...always, ...sometimes].includes(field))]).toEqual([
          key,
          [],
        ]);
      }
    }
    expect(unknown).toEqual([]);
    const missing = [...known, ...ours].filter((row) => !seen.has(row));
    expect(missing.map(({ name }) => name.source)).toEqual([]);
  });

  it('values have the form that the table says', async () => {
    await live(store);
    const { redis } = engine;
    expect(await redis.hget('voice:merchant:config', 'acme')).toBe('{"pool":"acme"}');
    expect(await redis.mget('voice:pod:tier:gold-1', 'voice:pod:tier:vip-1')).toEqual([
      'gold',
      'merchant:vip',
    ]);
    expect(await redis.zrange('voice:pool:basic:available', 0, '-1', 'WITHSCORES')).toEqual(['basic-2', '1']);
    expect(await redis.hmget('voice:call:v', 'pod_name', 'source_pool')).toEqual(['vip-1', 'merchant:vip']);
    expect(await redis.hget('voice:pod:basic-1', 'status')).toBe('draining');
    expect(await redis.hget('voice:pod:gold-1', 'uid')).toBe('u1');
    expect(await redis.hget('voice:pod:gold-1', 'status')).toBe('allocated');
    expect(await redis.zrange('voice:pod:calls:basic-1', 0, '-1')).toHaveLength(3);
    expect(await redis.get('voice:lease:vip-1')).toBe('v');
    expect(await redis.zcard('voice:merchant:acme:calls')).toBe(2);
    expect(await redis.smembers('voice:limits:shop')).toEqual(['limited']);
    expect(await redis.zrange('voice:waiting:calls:', 0, '-1')).toEqual(['waits']);
  });

  it('a removed pod leaves only events and the tombstones of its calls', async () => {
    await live(store);
    await store.calls.release('waits');
    // They expire within a minute.
    await engine.redis.del(
      'voice:waiting:queue:',
      'voice:waiting:released:waits',
      'voice:waiting:released:leaves',
    );
    const pods = ['gold-1', 'gold-2', 'gold-3', 'basic-1', 'basic-2', 'vip-1', 'acme-1', 'acme-2', 'acme-3'];
    await store.pools.remove(store.epoch, pods, 'gone');
    const left = (await scan(engine.redis)).filter(
      (key) => !['voice:events', 'voice:journal'].includes(key) && !key.startsWith('voice:tombstones:'),
    );
    const texts = await everything(engine.redis, left);
    expect(texts.filter((text) => pods.some((name) => text.includes(name)))).toEqual([]);
    expect(left).toEqual([
      'voice:fence',
      'voice:leader:epoch',
      'voice:limits',
      'voice:merchant:config',
      'voice:pools',
      'voice:reported:since',
      'voice:tier:config',
      'voice:tier:version',
    ]);
  });

  it.each(['team-a:', '{voice}:', 'odd*[x]?:', 'p'])(
    'with the prefix %s every key has the prefix',
    async (prefix) => {
      await engine.redis.flushall();
      const other = await openStore(engine.url, { virtualTime: true, prefix });
      try {
        await live(other);
        expect((await scan(engine.redis)).filter((key) => !key.startsWith(prefix))).toEqual([]);
      } finally {
        other.close();
      }
    },
  );

  it('two routers with different prefixes do not see each other', async () => {
    const other = await openStore(engine.url, { virtualTime: true, prefix: 'other:' });
    try {
      await store.register(['a'], 'pool:gold');
      await other.register(['a'], 'pool:gold');
      await store.allocate('1', ['pool:gold']);
      expect(await other.allocate('1', ['pool:gold'])).toMatchObject({ wasExisting: false });
      await other.calls.release('1');
      expect(await store.calls.call('1')).toMatchObject({ podName: 'a' });
    } finally {
      other.close();
    }
  });

  it.each([
    ['events', 50_000],
    ['journal', 10_000],
  ])('the stream %s is capped', async (name, most) => {
    const key = `voice:${name}`;
    await engine.redis.eval(
      "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'n', i) end",
      1,
      key,
      most + 10_000,
    );
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    expect(await engine.redis.xlen(key)).toBeLessThan(most + 500);
    expect(await engine.redis.xlen(key)).toBeGreaterThanOrEqual(most);
  });

  const kept = async (key: string) =>
    (await engine.redis.xrange(key, '-', '+')).map(([id, fields]) => `${id} ${fields.join(' ')}`);

  it('rare events are also in the journal, under the same id; those of every call are not', async () => {
    await live(store);
    const often = /^\S+ type (call_allocated|call_released|call_waiting|wait_abandoned|no_pods) /;
    const events = await kept('voice:events');
    expect(events.some((text) => often.test(text))).toBe(true);
    expect(await kept('voice:journal')).toEqual(events.filter((text) => !often.test(text)));
  });

  it('a journal that is ahead of the clock still takes events', async () => {
    await engine.redis.del('voice:events', 'voice:journal');
    await engine.redis.xadd('voice:journal', '99999999999999-0', 'type', 'from a clock that was wrong');
    await store.register(['a', 'b'], 'pool:gold');
    expect((await kept('voice:journal')).map((text) => text.split(' ').slice(1, 3).join(' '))).toEqual([
      'type from',
      'type pod_registered',
      'type pod_registered',
    ]);
    expect(await kept('voice:events')).toHaveLength(2);
  });
});
