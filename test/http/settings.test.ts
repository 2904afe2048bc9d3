/** Tiers and merchants at run time: three forms, versions, conversion under load, other replicas, lost stores. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { baseEnv, dump, impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const tiers = {
  tiers: { gold: { type: 'exclusive', target: 2 }, basic: { type: 'shared', target: 1, max_concurrent: 3 } },
  default_chain: ['gold', 'basic'],
};

describeEngines('settings over HTTP', (engine) => {
  let router: TestRouter;
  const others: TestRouter[] = [];
  beforeEach(async () => {
    router = await startTestRouter(engine.url);
  });
  afterEach(async () => {
    for (const other of others.splice(0)) await other.stop();
    await router.stop();
  });
  const start = async (env: Record<string, string> = {}) => {
    const other = await startTestRouter(engine.url, { POD_NAME: 'second', ...env });
    others.push(other);
    return other;
  };
  const metric = async (name: string) =>
    Number(new RegExp(`^${name} (\\d+)$`, 'm').exec((await router.get('/metrics')).text)?.[1]);

  it('GET /tiers shows the current tiers, with their version as ETag', async () => {
    const answer = await router.get('/tiers');
    expect(answer.body).toEqual({ ...tiers, version: 1 });
    expect(answer.headers.etag).toBe('"1"');
  });

  it('PUT /tiers takes the three forms and answers with what now holds', async () => {
    const forms: [unknown, unknown][] = [
      [tiers, tiers],
      [
        { gold: { target: 1 }, basic: { type: 'shared' } },
        {
          tiers: {
            gold: { type: 'exclusive', target: 1 },
            basic: { type: 'shared', target: 0, max_concurrent: 5 },
          },
          default_chain: ['gold', 'basic'],
        },
      ],
      [
        { standard: 20, gold: 10 },
        {
          tiers: { gold: { type: 'exclusive', target: 10 }, standard: { type: 'exclusive', target: 20 } },
          default_chain: ['gold', 'standard'],
        },
      ],
    ];
    for (const [form, holds] of forms) {
      const answer = await router.put('/tiers', form);
      expect(answer.status).toBe(200);
      expect(answer.body).toEqual({ ...(holds as object), version: expect.any(Number) });
      expect(answer.headers.etag).toBe(`"${answer.body.version}"`);
      expect((await router.get('/tiers')).body).toEqual(answer.body);
      expect(JSON.parse((await engine.redis.get('voice:tier:config')) as string)).toEqual(holds);
    }
    const warned = await router.put('/tiers', { tiers: { gold: {} }, default_chain: ['gold', 'nowhere'] });
    expect(warned.body.warnings).toEqual([expect.stringContaining('"nowhere" is dropped')]);
  });

  it('If-Match accepts one of two writers', async () => {
    const { etag } = (await router.get('/tiers')).headers as { etag: string };
    const write = (gold: number) => router.put('/tiers', { gold }, { 'if-match': etag });
    const answers = await Promise.all([write(1), write(2), write(3)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
    const refused = answers.find(({ status }) => status === 409);
    expect(refused?.body.code).toBe('version_conflict');
    const kept = answers.findIndex(({ status }) => status === 200) + 1;
    expect((await router.get('/tiers')).body.tiers.gold.target).toBe(kept);
  });

  it('a shared pool with calls becomes exclusive only when no pod has two, and loses no call', async () => {
    await router.post('/drain', { pod_name: 'gold-1' });
    await router.post('/drain', { pod_name: 'gold-2' });
    for (const call_sid of ['CA1', 'CA2']) await router.post('/allocate', { call_sid });
    const exclusive = { gold: { target: 2 }, basic: { target: 1 } };
    const refused = await router.put('/tiers', exclusive);
    expect([refused.status, refused.body.code]).toEqual([409, 'tier_conflict']);
    expect(refused.body.error).toMatch(/^pool:basic cannot be changed now: 1 of its pods have more than one/);
    expect((await router.get('/tiers')).body.tiers.basic.type).toBe('shared');
    await router.post('/release', { call_sid: 'CA2' });
    expect((await router.put('/tiers', exclusive)).status).toBe(200);
    expect((await router.get('/status')).body.pools.basic).toEqual({
      type: 'exclusive',
      assigned: 1,
      available: 0,
      active_calls: 1,
      capacity: 1,
    });
    expect((await router.post('/allocate', { call_sid: 'CA3' })).status).toBe(503);
    expect((await router.post('/release', { call_sid: 'CA1' })).body.released_to_pool).toBe('pool:basic');
  });

  it('conversions while calls come and go double no pod and lose no call', async () => {
    let running = true;
    const failures: unknown[] = [];
    const load = Array.from({ length: 4 }, async (_, worker) => {
      for (let i = 0; running; i += 1) {
        const call_sid = `${worker}-${i}`;
        const given = await router.post('/allocate', { call_sid });
        if (given.status === 503 && given.body.code === 'no_pods') continue;
        const ended = await router.post('/release', { call_sid, fence: given.body.fence });
        if (ended.status !== 200) failures.push([given.body, ended.body]);
      }
    });
    const done = { ok: 0, refused: 0 };
    for (let i = 0; i < 30; i += 1) {
      const form = i % 2 === 0 ? { gold: { target: 2 }, basic: { target: 1 } } : tiers;
      const { status } = await router.put('/tiers', form);
      if (status === 200) done.ok += 1;
      else done.refused += 1;
    }
    running = false;
    await Promise.all(load);
    expect(failures).toEqual([]);
    expect(done.ok).toBeGreaterThan(0);
    await router.put('/tiers', tiers);
    await until(async () => {
      const { pools } = (await router.get('/status')).body;
      return pools.gold.available === 2 && pools.basic.available === 1;
    }, 'every pod is available again');
  });

  it('max_concurrent below the present load gives no new call and cuts none', async () => {
    for (const pod_name of ['gold-1', 'gold-2']) await router.post('/drain', { pod_name });
    for (const call_sid of ['CA1', 'CA2']) await router.post('/allocate', { call_sid });
    const lower = { ...tiers.tiers, basic: { type: 'shared', target: 1, max_concurrent: 1 } };
    expect((await router.put('/tiers', lower)).status).toBe(200);
    expect((await router.post('/allocate', { call_sid: 'CA3' })).body.code).toBe('no_pods');
    expect((await router.get('/pod/basic-1')).body.calls.sort()).toEqual(['CA1', 'CA2']);
    await router.post('/release', { call_sid: 'CA1' });
    expect((await router.post('/allocate', { call_sid: 'CA3' })).body.code).toBe('no_pods');
    await router.post('/release', { call_sid: 'CA2' });
    expect((await router.post('/allocate', { call_sid: 'CA3' })).body.pod_name).toBe('basic-1');
  });

  it('a second router sees new tiers and merchants after its refresh', async () => {
    const other = await start();
    await router.put('/tiers', { basic: { type: 'shared', target: 1, max_concurrent: 2 } });
    await router.put('/merchants/acme', { fallback: ['basic'] });
    await until(() => {
      const { settings } = other.context;
      return settings.tiers.defaultChain.join() === 'basic' && settings.merchants.has('acme');
    }, 'the other router has read it');
    expect((await other.get('/merchants/acme')).body).toEqual({
      merchant_id: 'acme',
      fallback: ['basic'],
      chain: ['pool:basic'],
      skipped: [],
    });
  });

  it('invalid JSON in the store keeps the old tiers, with a warning and a count', async () => {
    await engine.redis.set('voice:tier:config', '{"gold": ');
    await until(
      async () => (await metric('smart_router_settings_refresh_errors_total')) > 0,
      'it is counted',
    );
    expect(router.logText()).toContain('invalid tier configuration in the store');
    expect((await router.get('/tiers')).body).toMatchObject(tiers);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
  });

  it('after FLUSHALL pods and tiers are back within one reconcile, and calls are served', async () => {
    await router.put('/tiers', {
      ...tiers,
      tiers: { ...tiers.tiers, gold: { type: 'exclusive', target: 9 } },
    });
    await engine.redis.flushall();
    await until(async () => {
      const { pools } = (await router.get('/status')).body;
      return pools.gold?.available === 2 && pools.basic?.available === 1;
    }, 'the pods are back');
    expect((await router.get('/tiers')).body.tiers.gold.target).toBe(9);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
  });

  it('TIER_CONFIG that differs from the store is warned about and shown, and does not count', async () => {
    const other = await start({ TIER_CONFIG: '{"gold":99,"basic":1}' });
    expect(other.logText()).toContain('TIER_CONFIG ignored: the store has another tier configuration');
    const { body } = await other.get('/status');
    expect([body.tier_config_differs, body.tier_version]).toEqual([true, 1]);
    expect((await other.get('/tiers')).body).toMatchObject(tiers);
    expect((await router.get('/status')).body.tier_config_differs).toBe(false);
    expect(baseEnv.TIER_CONFIG).toContain('gold');
  });

  it('merchants: written, read, listed, deleted, and obeyed', async () => {
    const written = await router.put('/merchants/acme', { tier: 'basic', pool: 'vip' });
    const expected = {
      merchant_id: 'acme',
      tier: 'basic',
      pool: 'vip',
      chain: ['merchant:vip', 'pool:basic'],
      skipped: [],
    };
    expect([written.status, written.body]).toEqual([200, expected]);
    expect((await router.get('/merchants/acme')).body).toEqual(expected);
    await router.put('/merchants/zeta', { fallback: ['nowhere'] });
    const { body } = await router.get('/merchants');
    expect(body.merchants.map((one: { merchant_id: string }) => one.merchant_id)).toEqual(['acme', 'zeta']);
    expect(body.merchants[1].skipped).toEqual([{ step: 'nowhere', reason: 'no such tier' }]);
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
    expect(call.source_pool).toBe('pool:basic');
    const gone = await router.del('/merchants/acme');
    expect([gone.status, gone.body]).toEqual([200, { success: true, merchant_id: 'acme' }]);
    expect((await router.get('/merchants/acme')).status).toBe(404);
  });

  it('a malformed merchant entry costs that merchant its wish, not its call', async () => {
    await engine.redis.hset('voice:merchant:config', 'acme', '{"tier": 5', 'beta', '[]', '__proto__', '{}');
    await until(() => router.context.settings.merchants.has('acme'), 'it is read');
    for (const merchant_id of ['acme', 'beta', '__proto__']) {
      const answer = await router.post('/allocate', { call_sid: merchant_id, merchant_id });
      expect(answer.status).toBe(200);
    }
    expect(router.logText()).toContain('malformed merchant entry; default chain used');
  });

  it('logs a malformed merchant and a skipped step once per change, not at every refresh', async () => {
    // Its own loops would read at the same time.
    const quiet = await start({ TIER_CONFIG_REFRESH_INTERVAL: '1h', RECONCILE_INTERVAL: '1h' });
    const { settings } = quiet.context;
    const lines = (text: string) => quiet.logs().filter(({ msg }) => String(msg).includes(text));
    await engine.redis.hset(
      'voice:merchant:config',
      'acme',
      '{"tier": 5',
      'beta',
      '{"fallback":["nowhere","basic"]}',
    );
    await engine.redis.hset('voice:merchant:config', '', '{}');
    await engine.redis.set('voice:tier:config', '{"gold": ');
    for (let round = 0; round < 3; round++) await settings.refreshOrThrow();
    expect(lines('malformed')).toMatchObject([{ merchant: 'acme', problem: expect.any(String) }]);
    expect(lines('steps of a merchant chain skipped')).toMatchObject([
      { merchant: 'beta', skipped: [{ step: 'nowhere', reason: 'no such tier' }] },
    ]);
    expect(lines('merchant entry with an invalid id')).toHaveLength(1);
    expect(lines('invalid tier configuration in the store')).toHaveLength(1);
    await engine.redis.hset(
      'voice:merchant:config',
      'acme',
      '[]',
      'beta',
      '{"fallback":["elsewhere","basic"]}',
    );
    for (let round = 0; round < 3; round++) await settings.refreshOrThrow();
    expect([lines('malformed').length, lines('steps of a merchant chain skipped').length]).toEqual([2, 2]);
  });

  it('logs the warnings of a tier configuration that was written to the store by hand', async () => {
    await engine.redis.set(
      'voice:tier:config',
      JSON.stringify({ ...tiers, default_chain: ['gold', 'nowhere'] }),
    );
    const quiet = await start({ TIER_CONFIG_REFRESH_INTERVAL: '1h', RECONCILE_INTERVAL: '1h' });
    // The leader applies the text again with every reconcile.
    await quiet.context.settings.refreshOrThrow();
    await quiet.context.settings.reapply();
    const lines = quiet.logs().filter(({ msg }) => msg === 'tier configuration in the store has warnings');
    expect(lines).toMatchObject([{ warnings: [expect.stringContaining('nowhere')] }]);
  });

  it('a store whose tier configuration is broken from the start is served with TIER_CONFIG, and the text is kept', async () => {
    await router.stop();
    await engine.redis.flushall();
    // As a Go program writes a tier without a limit.
    const text =
      '{"tiers":{"gold":{"type":"exclusive","target":2,"max_concurrent":0}},"default_chain":["gold"]}';
    await engine.redis.set('voice:tier:config', text);
    router = await startTestRouter(engine.url);
    expect(router.logText()).toContain('invalid tier configuration in the store');
    const { body } = await router.post('/allocate', { call_sid: 'CA1' });
    expect(body.source_pool).toBe('pool:gold');
    expect(await engine.redis.get('voice:tier:config')).toBe(text);
    await engine.redis.set('voice:tier:config', text.replace(',"max_concurrent":0', ''));
    await until(
      async () => !('basic' in (await router.get('/tiers')).body.tiers),
      'the repaired text is applied',
    );
  });

  it('every change is an event that says who made it', async () => {
    await router.put('/tiers', { gold: 3 });
    await router.put('/merchants/acme', { tier: 'gold' });
    const events = await engine.redis.xrevrange('voice:events', '+', '-');
    const fields = events.map(([, flat]) => flat.join(' '));
    expect(fields.some((text) => /^type tiers_changed .*by anonymous@127\.0\.0\.1/.test(text))).toBe(true);
    expect(fields.some((text) => /^type merchant_changed merchant acme .*by anonymous@/.test(text))).toBe(
      true,
    );
  });

  it('does not change a store of another data version, although it answers later', async () => {
    const way = await tcpProxy(Number(new URL(engine.url).port));
    await way.down();
    const other = await startTestRouter(`redis://127.0.0.1:${way.port}`, impatient, { ready: false });
    others.push(other);
    await engine.redis.set('voice:data:version', 9);
    const before = await dump(engine.redis);
    await way.up();
    await until(() => other.logText().includes('store not usable; fix'), 'it has seen the version');
    for (const answer of [
      await other.put('/tiers', { gold: 1 }),
      await other.get('/tiers'),
      await other.put('/merchants/acme', { tier: 'gold' }),
      await other.get('/merchants'),
      await other.del('/merchants/acme'),
    ]) {
      expect([answer.status, answer.body.code]).toEqual([503, 'store_unavailable']);
      expect(answer.headers['retry-after']).toBe('1');
    }
    expect(await dump(engine.redis)).toEqual(before);
  });
});
