/** Signing in to the console: the life of a cookie, what it opens, and who is kept out. */
import { createHmac } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { type Answer, startTestRouter, type TestRouter } from '../support/router.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { listen } from '../support/sse.js';
import { until } from '../support/until.js';

const apiKey = 'api-key-0123456789';
const adminKey = 'admin-key-0123456789';
const keys = { SMART_ROUTER_API_KEY: apiKey, SMART_ROUTER_ADMIN_KEY: adminKey };
const hour = 3_600_000;

const cookieOf = ({ headers }: Answer) => (headers['set-cookie'] ?? []).join('').split(';')[0] ?? '';
const refusal = ({ status, body }: Answer) => [status, body.code];

describeOneEngine('a session of the console', (engine) => {
  let router: TestRouter;
  let other: TestRouter | undefined;
  afterEach(async () => {
    await other?.stop();
    other = undefined;
    await router.stop();
  });
  const start = async (env: Record<string, string> = keys, clock = new SkippingClock()) => {
    router = await startTestRouter(engine.url, env, { clock });
    return clock;
  };
  const signIn = async (on = router, headers?: Record<string, string>) => {
    const answer = await on.post('/session', { key: adminKey }, headers);
    expect(answer.status).toBe(200);
    return cookieOf(answer);
  };
  const state = async (cookie = '') => (await router.get('/session', { cookie })).body;

  it('begins with the admin key and opens everything, until it is over', async () => {
    const clock = await start();
    expect(await state()).toMatchObject({ required: true, signed_in: false, expires_at: null });
    const answer = await router.post('/session', { key: adminKey });
    expect(answer.body).toEqual({ success: true, expires_at: expect.any(String) });
    expect(Math.abs(Date.parse(answer.body.expires_at) - clock.now() - 8 * hour)).toBeLessThan(60_000);
    expect(answer.headers['set-cookie']).toEqual([
      expect.stringMatching(
        /^smart_router_session=v1\.[\w.-]+; HttpOnly; SameSite=Strict; Path=\/; Max-Age=28800$/,
      ),
    ]);
    expect(answer.headers['cache-control']).toBe('no-store');
    const cookie = cookieOf(answer);
    expect(await state(cookie)).toEqual({
      required: true,
      signed_in: true,
      expires_at: answer.body.expires_at,
      version: expect.any(String),
    });
    expect((await router.get('/status', { cookie })).status).toBe(200);
    const own = { cookie, 'x-console': '1' };
    expect((await router.post('/drain', { pod_name: 'gold-1' }, own)).status).toBe(200);
    clock.skip(8 * hour);
    expect(await state(cookie)).toMatchObject({ signed_in: false, expires_at: null });
    expect(refusal(await router.get('/status', { cookie }))).toEqual([401, 'unauthorized']);
  });

  it('ends the event stream that it opened; one of a key continues', async () => {
    const clock = await start({ ...keys, CONSOLE_SESSION_TTL: '30m' });
    const cookie = await signIn();
    const opened = async (headers: Record<string, string>) => {
      const listener = await listen(`${router.url}/api/v1/events`, headers);
      expect(listener.status).toBe(200);
      const state = { listener, isClosed: false };
      void listener.closed.then(() => {
        state.isClosed = true;
      });
      return state;
    };
    const own = await opened({ cookie });
    const other = await opened({ cookie, authorization: `Bearer ${adminKey}` });
    const told = async (call_sid: string, to: (typeof own)[]) => {
      await router.post('/allocate', { call_sid }, { authorization: `Bearer ${apiKey}` });
      for (const { listener } of to)
        await until(
          () => listener.events.find(({ data }) => data.call === call_sid),
          `the event of ${call_sid} arrives`,
        );
    };
    clock.skip(29 * 60_000);
    await told('CA1', [own, other]);
    clock.skip(2 * 60_000);
    await own.listener.closed;
    await told('CA2', [other]);
    expect([own.isClosed, other.isClosed]).toEqual([true, false]);
    expect(own.listener.events.some(({ data }) => data.call === 'CA2')).toBe(false);
    other.listener.close();
  });

  it('lasts as long as CONSOLE_SESSION_TTL says, also for cookies from before it was shortened', async () => {
    const clock = await start({ ...keys, CONSOLE_SESSION_TTL: '30m' });
    const cookie = await signIn();
    other = await startTestRouter(engine.url, { ...keys, CONSOLE_SESSION_TTL: '5m' }, { clock });
    expect((await router.get('/status', { cookie })).status).toBe(200);
    expect((await other.get('/status', { cookie })).status).toBe(401);
    clock.skip(29 * 60_000);
    expect((await router.get('/status', { cookie })).status).toBe(200);
    clock.skip(2 * 60_000);
    expect((await router.get('/status', { cookie })).status).toBe(401);
  });

  it('is accepted by every replica with the same admin key, and ends when the key changes', async () => {
    await start();
    const cookie = await signIn();
    other = await startTestRouter(engine.url, keys);
    expect((await other.get('/status', { cookie })).status).toBe(200);
    await other.stop();
    other = await startTestRouter(engine.url, { ...keys, SMART_ROUTER_ADMIN_KEY: 'another-key-0123456789' });
    expect(refusal(await other.get('/status', { cookie }))).toEqual([401, 'unauthorized']);
    expect((await other.get('/session', { cookie })).body.signed_in).toBe(false);
  });

  it('changes nothing without the header that only our own page can send', async () => {
    await start();
    const cookie = await signIn();
    for (const headers of [{ cookie }, { cookie, 'x-console': '0' }, { cookie, 'x-console': '' }]) {
      const answers = [
        await router.post('/drain', { pod_name: 'gold-1' }, headers),
        await router.put('/tiers', { gold: 1 }, headers),
        await router.post('/removals/confirm', {}, headers),
        await router.ask('/merchants/acme', { method: 'DELETE', headers }),
      ];
      expect(answers.map(refusal)).toEqual(answers.map(() => [403, 'forbidden']));
    }
    expect((await router.get('/pod/gold-1', { cookie })).body.is_draining).toBe(false);
    expect((await router.get('/tiers', { cookie })).body.version).toBe(1);
  });

  it('is refused without a valid seal: a cookie that was changed, repeated or moved to another header', async () => {
    await start();
    const cookie = await signIn();
    const value = cookie.split('=')[1] ?? '';
    const [v, expiry, nonce, seal = ''] = value.split('.');
    const flipped = seal.startsWith('A') ? `B${seal.slice(1)}` : `A${seal.slice(1)}`;
    // The last character carries two bits that say nothing: no second spelling of a seal counts.
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const twin = seal.slice(0, -1) + alphabet[alphabet.indexOf(seal.at(-1) ?? '') ^ 1];
    const forged = (key: string) => {
      const text = `v1.${Date.now() + hour}.${nonce}`;
      return `${text}.${createHmac('sha256', key).update(text).digest('base64url')}`;
    };
    const wrong = [
      `${v}.${Number(expiry) + 1000}.${nonce}.${seal}`,
      `${v}.${expiry}.${nonce?.replace(/^./, (c) => (c === 'x' ? 'y' : 'x'))}.${seal}`,
      `${v}.${expiry}.${nonce}.${flipped}`,
      `${v}.${expiry}.${nonce}.${twin}`,
      `${v}.${expiry}.${nonce}.`,
      `${v}.${expiry}.${nonce}`,
      `v2.${expiry}.${nonce}.${seal}`,
      `"${value}"`,
      `${value}x`,
      encodeURIComponent(`${value} `),
      forged(adminKey),
      forged(''),
      'x'.repeat(8000),
      '',
    ];
    for (const text of wrong) {
      const given = { cookie: `smart_router_session=${text}` };
      expect([text, (await router.get('/status', given)).status]).toEqual([text, 401]);
    }
    for (const header of [
      `${cookie}; ${cookie}`,
      `${cookie}; smart_router_session=other`,
      `x${cookie}`,
      value,
      `Smart_Router_Session=${value}`,
    ]) {
      expect([header, (await router.get('/status', { cookie: header })).status]).toEqual([header, 401]);
    }
    expect((await router.get('/status', { cookie: `a=b; ${cookie} ; c="d"; e` })).status).toBe(200);
    expect((await router.get(`/status?${cookie}`)).status).toBe(401);
    expect((await router.get(`/status?cookie=${encodeURIComponent(cookie)}`)).status).toBe(401);
  });

  it('does not make up for a wrong key', async () => {
    await start();
    const cookie = await signIn();
    const ask = (authorization: string) => router.get('/status', { cookie, authorization });
    expect((await ask('Bearer wrong-key-0123456789')).status).toBe(401);
    expect((await ask(`Bearer ${apiKey}`)).status).toBe(403);
    expect((await ask(`Bearer ${adminKey}`)).status).toBe(200);
  });

  it('does not start with a wrong key, and after ten wrong keys in a minute with no key', async () => {
    const clock = await start();
    for (let i = 0; i < 10; i += 1) {
      const answer = await router.post('/session', { key: i === 3 ? apiKey : `wrong-key-${i}` });
      expect(refusal(answer)).toEqual([401, 'unauthorized']);
      expect(answer.headers['set-cookie']).toBeUndefined();
    }
    const answer = await router.post('/session', { key: adminKey });
    expect(refusal(answer)).toEqual([429, 'too_many_requests']);
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
    clock.skip(61_000);
    await signIn();
  });

  it('counts wrong keys by the address that a trusted proxy names', async () => {
    await start({ ...keys, TRUST_PROXY: 'true' });
    const from = (address: string, key = 'wrong-key') =>
      router.post('/session', { key }, { 'x-forwarded-for': address });
    for (let i = 0; i < 10; i += 1) await from('192.0.2.1');
    for (let i = 0; i < 10; i += 1) await from(`2001:db8:0:7::${i + 1}`);
    expect((await from('192.0.2.1', adminKey)).status).toBe(429);
    expect((await from('192.0.2.2', adminKey)).status).toBe(200);
    expect((await from('2001:DB8:0:7:1:2:3:4', adminKey)).status).toBe(429);
    expect((await from('2001:db8:0:8::1', adminKey)).status).toBe(200);
  });

  it('counts text that is not an address as one unknown address, behind a trusted proxy', async () => {
    await start({ ...keys, TRUST_PROXY: '1' });
    const from = (address: string, key = 'wrong-key') =>
      router.post('/session', { key }, { 'x-forwarded-for': address });
    for (let i = 0; i < 5; i += 1) await from(`<script>${i}</script>`);
    for (let i = 0; i < 5; i += 1) await from(`${i}`.repeat(10_000));
    expect((await from('not an address', adminKey)).status).toBe(429);
    // Some proxies add the port, which is another one with every connection.
    for (let i = 0; i < 5; i += 1) await from(`192.0.2.1:${50_000 + i}`);
    for (let i = 0; i < 5; i += 1) await from('192.0.2.1');
    for (let i = 0; i < 10; i += 1) await from(`[2001:db8::${i}]:${50_000 + i}`);
    expect((await from('192.0.2.1', adminKey)).status).toBe(429);
    expect((await from('2001:db8::ff', adminKey)).status).toBe(429);
    expect((await from('192.0.2.2', adminKey)).status).toBe(200);
    const audits = () => router.logs().filter(({ audit }) => audit === true);
    await until(() => audits().length === 34, 'all of it is audited');
    expect(new Set(audits().map(({ address }) => String(address).replace(/::\w+$/, '::')))).toEqual(
      new Set(['unknown', '192.0.2.1', '192.0.2.2', '2001:db8::']),
    );
  });

  it('rejects a wrong body without quoting it', async () => {
    await start();
    for (const body of [
      {},
      { key: 5 },
      { key: ['secret-in-a-list'] },
      { key: null },
      [],
      'secret-in-a-list',
      ['secret-in-a-list'],
    ]) {
      const answer = await router.post('/session', body);
      expect(refusal(answer)).toEqual([400, 'invalid_request']);
      expect(answer.text).not.toContain('secret-in-a-list');
    }
    const form = await router.form('/session', { key: adminKey });
    expect(refusal(form)).toEqual([415, 'unsupported_media_type']);
  });

  it('ends with a sign-out, which deletes the cookie', async () => {
    await start();
    const cookie = await signIn();
    const answer = await router.ask('/session', { method: 'DELETE', headers: { cookie } });
    expect(answer.body).toEqual({ success: true });
    expect(answer.headers['set-cookie']).toEqual([
      'smart_router_session=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0',
    ]);
    expect((await router.del('/session')).status).toBe(200);
  });

  it.each([
    ['by a proxy that is trusted', { TRUST_PROXY: 'true' }, { 'x-forwarded-proto': 'https' }, true],
    ['by a proxy that is not', {}, { 'x-forwarded-proto': 'https' }, false],
    [
      'at the address of PUBLIC_URL',
      { PUBLIC_URL: 'https://calls.example.com' },
      { host: 'calls.example.com' },
      true,
    ],
    ['at another address', { PUBLIC_URL: 'https://calls.example.com' }, { host: '127.0.0.1' }, false],
    [
      'at a PUBLIC_URL of http',
      { PUBLIC_URL: 'http://calls.example.com' },
      { host: 'calls.example.com' },
      false,
    ],
  ])('is limited to https if it was created by https: %s', async (_, env, headers, isSecure) => {
    await start({ ...keys, ...env } as Record<string, string>);
    const answer = await router.post('/session', { key: adminKey }, headers as Record<string, string>);
    const set = answer.headers['set-cookie']?.[0] ?? '';
    expect(set.endsWith('; Secure')).toBe(isSecure);
    // The prefix keeps other hosts of the domain from setting the cookie; a browser refuses it without https.
    expect(set.startsWith('__Host-smart_router_session=')).toBe(isSecure);
    const [cookie = ''] = set.split(';');
    const ended = await router.ask('/session', {
      method: 'DELETE',
      headers: headers as Record<string, string>,
    });
    expect(ended.headers['set-cookie']).toHaveLength(isSecure ? 2 : 1);
    for (const sent of [cookie, `${cookie}; other=a=b`, `${cookie}; smart_router_session=foreign`]) {
      const isKnown = isSecure || !sent.includes('foreign');
      expect((await router.get('/session', { cookie: sent })).body.signed_in).toBe(isKnown);
    }
  });

  it('is not needed on a router without keys', async () => {
    await start({});
    expect(await state()).toMatchObject({ required: false, signed_in: true, expires_at: null });
    const answer = await router.post('/session', { key: 'any key' });
    expect([answer.status, answer.body]).toEqual([200, { success: true, expires_at: null }]);
    expect(answer.headers['set-cookie']).toBeUndefined();
    expect((await router.post('/drain', { pod_name: 'gold-1' })).status).toBe(200);
  });

  it('cannot be had where only the API key is set', async () => {
    await start({ SMART_ROUTER_API_KEY: apiKey });
    expect(await state()).toMatchObject({ required: true, signed_in: false });
    expect(refusal(await router.post('/session', { key: apiKey }))).toEqual([403, 'forbidden']);
    const cookie = `smart_router_session=v1.${Date.now() + hour}.${'a'.repeat(22)}.${'a'.repeat(43)}`;
    expect((await router.get('/status', { cookie })).status).toBe(403);
    expect((await router.get('/pod/gold-1', { cookie })).status).toBe(401);
  });

  it('leaves nothing in the log that opens anything', async () => {
    await start({ ...keys, LOG_LEVEL: 'trace' });
    await router.post('/session', { key: 'a-wrong-key-that-is-nearly-right' });
    const cookie = await signIn();
    await router.get('/status', { cookie });
    await router.post('/drain', { pod_name: 'gold-1' }, { cookie, 'x-console': '1' });
    await router.ask('/session', { method: 'DELETE', headers: { cookie } });
    const [, , nonce, seal] = (cookie.split('=')[1] ?? '').split('.');
    for (const secret of [adminKey, 'nearly-right', nonce ?? '-', seal ?? '-', 'smart_router_session'])
      expect(router.logText()).not.toContain(secret);
  });
});
