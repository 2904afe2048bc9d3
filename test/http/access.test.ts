/** Access to every endpoint, with every combination of configured and given keys; and secrets stay out of the log. */
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';

const apiKey = 'api-key-0123456789';
const adminKey = 'admin-key-0123456789';
const given = { none: undefined, wrong: 'wrong-key-0123456789', api: apiKey, admin: adminKey };

type Level = 'public' | 'api' | 'admin';
const endpoints: [method: string, path: string, level: Level][] = [
  ['POST', '/allocate', 'api'],
  ['POST', '/release', 'api'],
  ['POST', '/renew', 'api'],
  ['POST', '/pod/ghost/report', 'api'],
  ['POST', '/drain', 'api'],
  ['POST', '/undrain', 'api'],
  ['GET', '/pod/ghost', 'api'],
  ['GET', '/status', 'admin'],
  ['GET', '/pods', 'admin'],
  ['GET', '/calls', 'admin'],
  ['GET', '/calls/nobody', 'admin'],
  ['GET', '/removals', 'admin'],
  ['GET', '/audit', 'admin'],
  ['POST', '/removals/confirm', 'admin'],
  ['GET', '/tiers', 'admin'],
  ['PUT', '/tiers', 'admin'],
  ['GET', '/merchants', 'admin'],
  ['GET', '/merchants/acme', 'admin'],
  ['PUT', '/merchants/acme', 'admin'],
  ['DELETE', '/merchants/acme', 'admin'],
  ['GET', '/events?since=x', 'admin'],
  ['GET', '/events/search', 'admin'],
  ['GET', '/calls/nobody/timeline', 'admin'],
  ['GET', '/recoveries', 'admin'],
  ['GET', '/history', 'admin'],
  ['GET', '/alerts', 'admin'],
  ['POST', '/tiers/preview', 'admin'],
  ['POST', '/explain', 'admin'],
  ['POST', '/session', 'public'],
  ['GET', '/session', 'public'],
  ['DELETE', '/session', 'public'],
  ['GET', '/openapi.json', 'admin'],
  ['GET', '/health', 'public'],
  ['GET', '/ready', 'public'],
  ['GET', '/metrics', 'public'],
];

/** 401, 403, or undefined for "admitted" (with any response to an empty body). */
function expected(keys: { api: boolean; admin: boolean }, level: Level, who: keyof typeof given) {
  if (level === 'public' || (!keys.api && !keys.admin)) return undefined;
  if (keys.admin && who === 'admin') return undefined;
  if (level === 'api') return keys.api && who === 'api' ? undefined : 401;
  if (!keys.admin) return 403;
  return keys.api && who === 'api' ? 403 : 401;
}

describeOneEngine('access', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());

  it.each([
    { api: false, admin: false },
    { api: true, admin: false },
    { api: false, admin: true },
    { api: true, admin: true },
  ])('with keys %o set, every endpoint accepts exactly the allowed callers', async (keys) => {
    router = await startTestRouter(engine.url, {
      ...(keys.api ? { SMART_ROUTER_API_KEY: apiKey } : {}),
      ...(keys.admin ? { SMART_ROUTER_ADMIN_KEY: adminKey } : {}),
    });
    const wrong: unknown[] = [];
    for (const [method, path, level] of endpoints) {
      for (const [who, value] of Object.entries(given)) {
        const headers: Record<string, string> = value ? { authorization: `Bearer ${value}` } : {};
        const { status, body } = await router.ask(path, { method, headers });
        const refused = status === 401 || status === 403 ? status : undefined;
        const should = expected(keys, level, who as keyof typeof given);
        const code = refused === 401 ? 'unauthorized' : refused === 403 ? 'forbidden' : body?.code;
        if (refused !== should || body?.code !== code)
          wrong.push({ method, path, who, status, should, body });
      }
    }
    expect(wrong).toEqual([]);
    expect(router.logText()).not.toMatch(/api-key-0|admin-key-0|wrong-key-0/);
  });

  it('a key counts only as a whole, in one bearer header, with Bearer in any case', async () => {
    router = await startTestRouter(engine.url, { SMART_ROUTER_API_KEY: apiKey });
    const status = async (authorization: string) =>
      (await router.get('/pod/gold-1', { authorization })).status;
    for (const right of [`Bearer ${apiKey}`, `bearer ${apiKey}`, `BEARER  ${apiKey}`]) {
      expect(await status(right)).toBe(200);
    }
    for (const wrong of [
      apiKey,
      `Basic ${apiKey}`,
      `Bearer ${apiKey}x`,
      `Bearer ${apiKey.slice(0, -1)}`,
      `Bearer ${apiKey}, Bearer x`,
      'Bearer ',
      'Bearer',
    ]) {
      expect(await status(wrong)).toBe(401);
    }
  });

  it('a page of another site changes nothing without a key, also on an open router', async () => {
    const body = JSON.stringify({ pod_name: 'gold-1' });
    const from = async (site: string | undefined, method = 'POST', path = '/drain', more = {}) => {
      const headers = {
        'content-type': 'application/json',
        ...(site ? { 'sec-fetch-site': site } : {}),
        ...more,
      };
      const answer = await router.ask(path, { method, headers, ...(method === 'POST' ? { body } : {}) });
      return answer.status === 403 ? answer.body.code : answer.status;
    };
    router = await startTestRouter(engine.url);
    for (const site of ['cross-site', 'same-site']) {
      expect(await from(site)).toBe('forbidden');
      expect(await from(site, 'DELETE', '/merchants/acme')).toBe('forbidden');
      expect(await from(site, 'DELETE', '/session')).toBe('forbidden');
      expect(await from(site, 'GET', '/status')).toBe(200);
      expect(await from(site, 'POST', '/twilio/status')).toBe('forbidden');
    }
    expect((await router.get('/pod/gold-1')).body.is_draining).toBe(false);
    for (const site of [undefined, 'same-origin', 'none']) expect(await from(site)).toBe(200);
    await router.stop();

    router = await startTestRouter(engine.url, { SMART_ROUTER_ADMIN_KEY: adminKey });
    const signedIn = await router.post('/session', { key: adminKey });
    const cookie = (signedIn.headers['set-cookie']?.[0] ?? '').split(';')[0] ?? '';
    const own = { cookie, 'x-console': '1' };
    expect(await from('same-site', 'POST', '/drain', own)).toBe('forbidden');
    expect(await from('same-origin', 'POST', '/drain', own)).toBe(200);
    expect(await from('cross-site', 'POST', '/drain', { authorization: `Bearer ${adminKey}` })).toBe(200);
  });

  it('without a key only requests to loopback or the host of PUBLIC_URL change something: no DNS rebinding', async () => {
    router = await startTestRouter(engine.url, { PUBLIC_URL: 'https://calls.example.com/voice' });
    const drain = (host: string, more = {}) =>
      router.post('/drain', { pod_name: 'gold-1' }, { host, ...more });
    for (const host of [
      'localhost',
      'LOCALHOST:8080',
      '127.0.0.1:1',
      '127.8.9.1',
      '[::1]:8080',
      'a.localhost',
    ])
      expect([host, (await drain(host)).status]).toEqual([host, 200]);
    expect((await drain('calls.example.com:8443')).status).toBe(200);
    for (const host of [
      'evil.example',
      '127.0.0.1.evil.example',
      'localhost.evil.example:8080',
      '192.168.0.7',
    ]) {
      const refused = await drain(host, { 'x-forwarded-host': 'localhost', 'sec-fetch-site': 'same-origin' });
      expect([host, refused.status, refused.body.code]).toEqual([host, 403, 'forbidden']);
      expect(refused.body.error).toContain('set PUBLIC_URL or a key');
    }
    const host = 'evil.example';
    expect((await router.get('/status', { host })).status).toBe(200);
    expect((await router.form('/twilio/allocate', { CallSid: 'CA1' }, { host })).status).toBe(403);
    expect((await router.get('/exotel/allocate?CallSid=CA1', { host })).status).toBe(403);
    const foreign = { 'sec-fetch-site': 'cross-site' };
    expect((await router.get('/exotel/allocate?CallSid=CA1', foreign)).status).toBe(403);
    expect((await router.get('/status')).body.active_calls).toBe(0);
    await router.stop();
    router = await startTestRouter(engine.url, { AUTH_DISABLED: 'true' });
    expect((await drain(host)).status).toBe(200);
    await router.stop();
    router = await startTestRouter(engine.url, { SMART_ROUTER_API_KEY: apiKey });
    expect((await drain(host, { authorization: `Bearer ${apiKey}` })).status).toBe(200);
  });

  it('answers an unknown path and a wrong method alike for every caller', async () => {
    router = await startTestRouter(engine.url, { SMART_ROUTER_ADMIN_KEY: adminKey });
    expect((await router.get('/nowhere')).status).toBe(404);
    expect((await router.get('/allocate')).status).toBe(405);
  });

  it('a refused request changes nothing and does not even read its body', async () => {
    router = await startTestRouter(engine.url, { SMART_ROUTER_API_KEY: apiKey });
    const answer = await router.ask('/allocate', { method: 'POST', body: '{broken' });
    expect(answer.status).toBe(401);
    const asAgent = { authorization: `Bearer ${apiKey}` };
    expect((await router.post('/allocate', { call_sid: 'CA1' }, asAgent)).body.was_existing).toBe(false);
  });

  it('keys, tokens and phone numbers are in no log line, at any level, for any failure', async () => {
    router = await startTestRouter(engine.url, {
      SMART_ROUTER_API_KEY: apiKey,
      SMART_ROUTER_ADMIN_KEY: adminKey,
      EXOTEL_WEBHOOK_TOKEN: 'exotel-secret',
      LOG_LEVEL: 'trace',
      ...impatient,
    });
    const fields = { CallSid: 'CA1', From: '+15550001111', To: '+15550002222', Caller: '+15550001111' };
    const query = new URLSearchParams({ ...fields, token: 'exotel-secret' });
    const bearer = { authorization: `Bearer ${apiKey}` };
    await router.get(`/exotel/allocate?${query}`);
    await router.post(`/exotel/allocate?${query}`, fields);
    await router.form(`/exotel/status?${query}&Status=completed`, fields);
    await router.form('/twilio/allocate', fields);
    await router.get(`/nowhere?${query}`, bearer);
    await router.get(`/calls/%E0%A4%A?${query}`, bearer);
    await router.post('/allocate', { call_sid: 5, From: fields.From }, bearer);
    await router.post(
      '/allocate',
      { call_sid: 'x', From: fields.From },
      { ...bearer, 'x-long': 'y'.repeat(20_000) },
    );
    await engine.pause();
    await router.form(`/exotel/status?${query}`, { ...fields, Status: 'completed' });
    await router.get(`/exotel/allocate?${query}`);
    await engine.resume();
    expect(router.logs().length).toBeGreaterThan(10);
    expect(router.logText()).not.toMatch(/\+?1555000|%2B1555|secret|api-key-0|admin-key-0|[Bb]earer/);
  });
});

describe('keys are compared', () => {
  it('only by the constant-time helper', () => {
    const source = (file: string) => readFileSync(new URL(`../../src/http/${file}`, import.meta.url), 'utf8');
    expect(source('auth.ts')).toContain("import { bearerMatches } from './providers/signatures.js'");
    const others = (text: string, names: string) =>
      [...text.matchAll(new RegExp(`\\b(?:${names}) [!=]==? (\\S+?)[);,]*\\s`, 'g'))].map(
        (match) => match[1],
      );
    expect(new Set(others(source('auth.ts'), 'apiKey|adminKey'))).toEqual(new Set(['undefined']));
    const signatures = source('providers/signatures.ts');
    expect(signatures).toMatch(/timingSafeEqual\(sha256\(received\), sha256\(expected\)\)/);
    const compared = new Set(others(signatures, 'token|key|signature|expected|received'));
    for (const harmless of ["''", "'string'", 'undefined']) compared.delete(harmless);
    expect([...compared]).toEqual([]);
  });
});
