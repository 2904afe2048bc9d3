/** How the console reaches a browser: what the page may do, how long its files are kept, and how large they are. */
import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import Fastify from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { App } from '../../src/http/context.js';
import { consoleRoutes } from '../../src/http/routes/console.js';
import { type Engine, startPreferred } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

const built = new URL('../../dist/console/', import.meta.url);
const assets = readdirSync(new URL('assets/', built));

let app: App;
beforeAll(async () => {
  app = Fastify() as unknown as App;
  await consoleRoutes(app);
});
afterAll(() => app.close());

describe('the page at /', () => {
  it('is HTML that cannot be embedded and must be revalidated', async () => {
    const { statusCode, headers, body } = await app.inject('/');
    expect(statusCode).toBe(200);
    expect(headers['content-type']).toBe('text/html; charset=utf-8');
    expect(headers['cache-control']).toBe('no-cache');
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['referrer-policy']).toBe('no-referrer');
    expect(headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(body).toContain('<html lang="en">');
  });

  it('allows scripts and styles of its own origin and nothing inline', async () => {
    const { headers, body } = await app.inject('/');
    const policy = String(headers['content-security-policy']).split('; ');
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
    expect(policy).toContain("style-src 'self'");
    expect(policy).toContain("connect-src 'self'");
    expect(policy.join()).not.toMatch(/unsafe|data:|\*/);
    expect(body).not.toMatch(/<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=/i);
  });

  it('loads nothing from elsewhere', async () => {
    const { body } = await app.inject('/');
    const addresses = [...body.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, address]) => address);
    expect(addresses.length).toBeGreaterThan(2);
    for (const address of addresses) expect(address).toMatch(/^\.\/assets\/[\w-]+-[\w-]{8}\.(js|css|svg)$/);
    for (const name of assets.filter((one) => one.endsWith('.css')))
      expect(readFileSync(new URL(`assets/${name}`, built), 'utf8')).not.toMatch(/@import|url\(/);
  });

  it('stores no key: the script uses neither storage nor cookies for it', () => {
    const script = assets.filter((name) => name.endsWith('.js'));
    expect(script.length).toBeGreaterThan(0);
    const text = script.map((name) => readFileSync(new URL(`assets/${name}`, built), 'utf8')).join('\n');
    expect(text).not.toMatch(/sessionStorage|document\.cookie|indexedDB|insertAdjacentHTML|document\.write/);
    // One place, for the choice of colours and of keys, and nothing else.
    expect(text.match(/localStorage\.\w+/g)).toEqual([
      'localStorage.getItem',
      'localStorage.removeItem',
      'localStorage.setItem',
    ]);
  });
});

describe('the files of the page', () => {
  it.each(assets)('%s is cached as immutable, because its name has a hash', async (name) => {
    const { statusCode, headers, rawPayload } = await app.inject(`/assets/${name}`);
    expect(statusCode).toBe(200);
    expect(headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['content-type']).toMatch(/^(text\/(javascript|css); charset=utf-8|image\/svg\+xml)$/);
    expect(rawPayload.equals(readFileSync(new URL(`assets/${name}`, built)))).toBe(true);
    const packed = await app.inject({ url: `/assets/${name}`, headers: { 'accept-encoding': 'gzip, br' } });
    expect(packed.headers['content-encoding']).toBe('gzip');
    for (const refusing of ['gzip;q=0', 'br, gzip; q=0.0, identity', 'not-gzip', 'gzipped', '']) {
      const plain = await app.inject({ url: `/assets/${name}`, headers: { 'accept-encoding': refusing } });
      expect([refusing, plain.headers['content-encoding']]).toEqual([refusing, undefined]);
    }
    for (const taking of ['GZIP', 'br;q=1.0, gzip;q=0.8', 'gzip;q=0.001']) {
      const some = await app.inject({ url: `/assets/${name}`, headers: { 'accept-encoding': taking } });
      expect([taking, some.headers['content-encoding']]).toEqual([taking, 'gzip']);
    }
    expect(packed.headers.vary).toBe('accept-encoding');
    expect(gunzipSync(packed.rawPayload).equals(rawPayload)).toBe(true);
  });

  it('are less than 300 KB together, compressed', async () => {
    const sizes = await Promise.all(
      ['/', ...assets.map((name) => `/assets/${name}`)].map(
        async (url) => (await app.inject({ url, headers: { 'accept-encoding': 'gzip' } })).rawPayload.length,
      ),
    );
    expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(300 * 1024);
  });

  it.each(['none.js', '..%2Findex.html', '..%2F..%2Findex.js', '%00', 'constructor'])(
    '%s is not one of them',
    async (name) => {
      const { statusCode } = await app.inject(`/assets/${name}`);
      expect(statusCode).toBe(404);
    },
  );
});

describe('on a router with keys', () => {
  let engine: Engine;
  let router: TestRouter;
  beforeAll(async () => {
    engine = await startPreferred();
    router = await startTestRouter(engine.url, {
      SMART_ROUTER_ADMIN_KEY: 'admin-key-0123456789',
      SMART_ROUTER_API_KEY: 'api-key-0123456789',
    });
  });
  afterAll(async () => {
    await router.stop();
    await engine.stop();
  });

  it('serves the page without a key and without data', async () => {
    const { status, text } = await router.get('//');
    expect(status).toBe(200);
    expect(text).not.toMatch(/gold|router-under-test|admin-key/);
    expect((await router.get('/status')).status).toBe(401);
  });

  it('answers a missing file with a JSON error', async () => {
    const { status, body } = await router.get('//assets/none.js');
    expect(status).toBe(404);
    expect(body).toEqual({
      success: false,
      error: 'the console has no such file: reload the page',
      code: 'not_found',
    });
  });
});
