/** Looking back: the search over both streams, and the story of one call. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { maxSearched, maxSearchedForCall } from '../../src/calls/event-search.js';
import { describeEngines } from '../support/engines.js';
import { expireLease } from '../support/expire-lease.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h' };
interface Found {
  id: string;
  type: string;
  at: string;
  call?: string;
  [field: string]: string | undefined;
}

describeEngines('events', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, quiet);
  });
  afterEach(async () => {
    await engine.resume();
    await router.stop();
  });
  const find = async (query = '') => {
    const { status, body } = await router.get(`/events/search${query}`);
    expect([status, body.code]).toEqual([200, undefined]);
    return body as { events: Found[]; before: string | null; kept_since: string | null };
  };
  const types = async (query: string) => (await find(query)).events.map(({ type }) => type);
  /** Events of a call that are kept after the main stream has been trimmed. */
  const forget = () => engine.redis.del('voice:events');

  it('are found newest first, each once, although the rare ones are kept twice', async () => {
    await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
    await router.post('/drain', { pod_name: 'gold-1' });
    const { events, before, kept_since } = await find();
    expect(events.slice(0, 2)).toEqual([
      expect.objectContaining({ type: 'pod_draining', pod: 'gold-1', by: 'anonymous@127.0.0.1' }),
      expect.objectContaining({ type: 'call_allocated', call: 'CA1', merchant: 'acme', pool: 'pool:gold' }),
    ]);
    const ids = (await engine.redis.xrange('voice:events', '-', '+')).map(([id]) => id);
    expect(events.map(({ id }) => id)).toEqual(ids.reverse());
    expect(before).toBeNull();
    expect(kept_since).toBe(events.at(-1)?.at);
  });

  it('before the lowest possible id are empty', async () => {
    for (const before of ['0-0', '000-00', '0-1', '1-0'])
      expect(await find(`?before=${before}`)).toMatchObject({ events: [], before: null });
  });

  it('are found by type, call, pod, merchant and text, and by all of them at once', async () => {
    await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
    await router.post('/allocate', { call_sid: 'CA2' });
    await router.post('/release', { call_sid: 'CA1' });
    await router.put('/merchants/acme', { tier: 'gold' });
    expect(await types('?type=call_allocated')).toEqual(['call_allocated', 'call_allocated']);
    expect(await types('?type=call_released,merchant_changed')).toEqual([
      'merchant_changed',
      'call_released',
    ]);
    expect(await types('?call=CA1')).toEqual(['call_released', 'call_allocated']);
    expect(await types('?call=CA')).toEqual([]);
    expect(await types('?merchant=acme')).toEqual(['merchant_changed', 'call_allocated']);
    expect(await types('?q=ANONYMOUS%40')).toEqual(['merchant_changed']);
    expect(await types('?q=ca1')).toEqual(['call_released', 'call_allocated']);
    const pods = (await find('?pod=gold-1')).events;
    expect(pods.length).toBeGreaterThan(0);
    expect(pods.every(({ pod }) => pod === 'gold-1')).toBe(true);
    expect(await types('?call=CA1&type=call_released&q=gold')).toEqual(['call_released']);
    expect(await types('?call=CA1&merchant=other')).toEqual([]);
  });

  it('are read page by page without a gap or a double, across both streams', async () => {
    for (let i = 0; i < 5; i += 1) {
      await router.post('/allocate', { call_sid: `CA${i}` });
      await router.post(i % 2 === 0 ? '/drain' : '/undrain', { pod_name: 'gold-1' });
    }
    const all = (await find('?limit=500')).events.map(({ id }) => id);
    // The rest of the main stream is trimmed: the journal continues where it ends.
    await engine.redis.xtrim('voice:events', 'MAXLEN', 4);
    const left = (await find('?limit=500')).events.map(({ id }) => id);
    expect(left.length).toBeLessThan(all.length);
    expect(left).toEqual(all.filter((id) => left.includes(id)));
    const paged: string[] = [];
    let query: string | null = '';
    while (query !== null) {
      const page = await find(`?limit=3${query}`);
      expect(page.events.length).toBeLessThanOrEqual(3);
      paged.push(...page.events.map(({ id }) => id));
      query = page.before === null ? null : `&before=${page.before}`;
    }
    expect(paged).toEqual(left);
    expect(new Set(paged).size).toBe(paged.length);
  });

  it('that are rare are found when calls have pushed them out of the stream', async () => {
    await router.post('/drain', { pod_name: 'gold-1' });
    await router.post('/allocate', { call_sid: 'CA1' });
    await forget();
    const { events, kept_since } = await find('?type=pod_draining,call_allocated');
    expect(events.map(({ type }) => type)).toEqual(['pod_draining']);
    expect(kept_since).toBeNull();
  });

  it('are searched ten thousand at a time: an empty page says where to continue', async () => {
    await engine.redis.eval(
      "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'type', 'note', 'n', i) end",
      1,
      'voice:events',
      maxSearched + 10,
    );
    const first = await find('?type=pod_registered');
    expect(first.events).toEqual([]);
    expect(first.before).not.toBeNull();
    const second = await find(`?type=pod_registered&before=${first.before}`);
    expect(second.events).toHaveLength(3);
    expect(second.before).toBeNull();
  });

  it('of one call are searched up to a limit', async () => {
    await engine.redis.eval(
      `redis.call('XADD', KEYS[1], '*', 'type', 'note', 'call', 'CA9')
      for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'type', 'note', 'n', i) end
      redis.call('XADD', KEYS[1], '*', 'type', 'call_released', 'call', 'CA9')`,
      1,
      'voice:events',
      maxSearchedForCall + 500,
    );
    const { status, body } = await router.get('/calls/CA9/timeline');
    expect([status, body.is_complete]).toEqual([200, false]);
    expect(body.events).toEqual([expect.objectContaining({ type: 'call_released' })]);
  });

  it.each([
    ['type=a b', 'type'],
    ['type=', 'type'],
    ['limit=0', 'limit'],
    ['limit=501', 'limit'],
    ['before=yesterday', 'before'],
    ['before=5', 'before'],
    [`call=${'x'.repeat(257)}`, 'call'],
    ['q=', 'q'],
    ['pod=', 'pod'],
    [`merchant=${'m'.repeat(65)}`, 'merchant'],
  ])('cannot be searched with %s', async (query, field) => {
    const { status, body } = await router.get(`/events/search?${query.replace(' ', '%20')}`);
    expect([status, body.code]).toEqual([400, 'invalid_request']);
    expect(body.error).toMatch(new RegExp(`^querystring: ${field} must be `));
  });

  it('are an error while the store is unreachable', async () => {
    await router.stop();
    router = await startTestRouter(engine.url, { ...quiet, ...impatient });
    await engine.pause();
    const [search, timeline] = await Promise.all([
      router.get('/events/search'),
      router.get('/calls/CA1/timeline'),
    ]);
    expect([search.status, timeline.status]).toEqual([503, 503]);
    expect(search.body.code).toBe('store_unavailable');
  });

  it('are searched by four requests at a time; the fifth gets Retry-After', async () => {
    await engine.pause();
    const answers: unknown[] = [];
    const asked = Array.from({ length: 8 }, async () => {
      const { status, headers } = await router.get('/events/search');
      answers.push([status, headers['retry-after']]);
    });
    await until(() => answers.length >= 4, 'four are refused');
    await engine.resume();
    await Promise.all(asked);
    expect(answers).toEqual([...Array(4).fill([429, '1']), ...Array(4).fill([200, undefined])]);
    await find();
  });
});

describeEngines('the timeline of a call', (engine) => {
  let router: TestRouter;
  const start = async (env: Record<string, string> = {}) => {
    router = await startTestRouter(engine.url, { ...quiet, ...env });
  };
  afterEach(() => router.stop());
  const timeline = async (sid: string) => {
    const { status, body } = await router.get(`/calls/${encodeURIComponent(sid)}/timeline`);
    expect([status, body.code]).toEqual([200, undefined]);
    return body as { call_sid: string; live: unknown; events: Found[]; is_complete: boolean };
  };
  const story = async (sid: string) => (await timeline(sid)).events.map(({ type }) => type);

  it('shows a live call with its last renewal', async () => {
    await start();
    await router.post('/allocate', { call_sid: 'a/b c', merchant_id: 'acme' });
    await router.post('/renew', { call_sid: 'a/b c' });
    expect(await timeline('a/b c')).toEqual({
      call_sid: 'a/b c',
      live: expect.objectContaining({ call_sid: 'a/b c', renewed_at: expect.any(String) }),
      events: [expect.objectContaining({ type: 'call_allocated', call: 'a/b c', merchant: 'acme' })],
      is_complete: true,
    });
  });

  it('has all events of an id that was used again after its call was recovered', async () => {
    await start({ CLEANUP_INTERVAL: '100ms' });
    await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/renew', { call_sid: 'CA1' });
    await expireLease(engine.redis, 'CA1');
    await until(async () => (await router.get('/calls/CA1')).status === 404, 'its lease has run out');
    await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/release', { call_sid: 'CA1' });
    const { live, events, is_complete } = await timeline('CA1');
    expect([live, is_complete]).toEqual([null, true]);
    expect(events).toEqual([
      expect.objectContaining({ type: 'call_allocated' }),
      expect.objectContaining({
        type: 'call_recovered',
        reason: 'lease expired',
        pod: expect.stringMatching(/^gold-/),
        pool: 'pool:gold',
        age_seconds: expect.stringMatching(/^\d+$/),
        renewed_at: expect.stringMatching(/Z$/),
      }),
      expect.objectContaining({ type: 'call_allocated' }),
      expect.objectContaining({ type: 'call_released' }),
    ]);
  });

  it('shows a call that never got a pod, and the chain it tried', async () => {
    await start();
    for (let i = 1; i <= 6; i += 1) await router.post('/allocate', { call_sid: `CA${i}` });
    expect((await timeline('CA6')).events).toEqual([
      expect.objectContaining({
        type: 'no_pods',
        chain: 'pool:gold pool:basic',
        saw: 'pool:gold 2 pods 2 calls 0 blocked; pool:basic 1 pods 3 calls 0 blocked',
      }),
    ]);
  });

  it('names the operator who ended it, not its agent', async () => {
    const [admin, agent] = ['admin-key-0123456789', 'api-key-0123456789'].map((key) => ({
      authorization: `Bearer ${key}`,
    }));
    await start({
      SMART_ROUTER_ADMIN_KEY: 'admin-key-0123456789',
      SMART_ROUTER_API_KEY: 'api-key-0123456789',
    });
    for (const sid of ['CA1', 'CA2']) await router.post('/allocate', { call_sid: sid }, agent);
    await router.post('/release', { call_sid: 'CA1' }, admin);
    await router.post('/release', { call_sid: 'CA2' }, agent);
    const end = async (sid: string) => (await router.get(`/calls/${sid}/timeline`, admin)).body.events.at(-1);
    expect(await end('CA1')).toMatchObject({ type: 'call_released', by: 'admin@127.0.0.1' });
    expect(await end('CA2')).toMatchObject({ type: 'call_released' });
    expect(await end('CA2')).not.toHaveProperty('by');
  });

  it('is marked as incomplete when its first events are no longer stored', async () => {
    await start();
    await router.post('/allocate', { call_sid: 'CA1' });
    await engine.redis.del('voice:events');
    expect(await timeline('CA1')).toMatchObject({
      live: { call_sid: 'CA1' },
      events: [],
      is_complete: false,
    });
    await router.post('/release', { call_sid: 'CA1' });
    expect(await timeline('CA1')).toMatchObject({ live: null, is_complete: false });
    expect(await story('CA1')).toEqual(['call_released']);
  });

  it('is 404 when there is neither a call nor an event', async () => {
    await start();
    const { status, body } = await router.get('/calls/nobody/timeline');
    expect([status, body.code]).toEqual([404, 'call_not_found']);
  });
});
