import { createHash } from 'node:crypto';
import Fastify from 'fastify';
import { describe, expect, test } from 'vitest';
import type { App, HttpContext } from '../../src/http/context.js';
import { homeRoutes } from '../../src/http/routes/home.js';

async function page() {
  const app = Fastify() as unknown as App;
  await homeRoutes(app, {} as HttpContext);
  const response = await app.inject('/');
  await app.close();
  return response;
}

const inside = (html: string, tag: string) =>
  [...html.matchAll(new RegExp(`<${tag}>(.*?)</${tag}>`, 'gs'))].map((match) => match[1] ?? '');

describe('the page at /', () => {
  test('is HTML that a browser may not embed, and must ask for again', async () => {
    const { statusCode, headers, body } = await page();
    expect(statusCode).toBe(200);
    expect(headers['content-type']).toBe('text/html; charset=utf-8');
    expect(headers['cache-control']).toBe('no-cache');
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(body).toContain('<html lang="en">');
  });

  test('allows exactly its own script and style, by their hashes', async () => {
    const { headers, body } = await page();
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toContain('unsafe');
    for (const [tag, directive] of [
      ['script', 'script-src'],
      ['style', 'style-src'],
    ] as const) {
      const [text, ...more] = inside(body, tag);
      expect(more).toEqual([]);
      const hash = createHash('sha256')
        .update(text ?? '')
        .digest('base64');
      expect(policy).toContain(`${directive} 'sha256-${hash}'`);
    }
  });

  test('loads nothing from elsewhere and runs no markup of its own making', async () => {
    const { body } = await page();
    const addresses = [...body.matchAll(/(?:https?:)?\/\/[^\s"'%)]+/g)].map(([address]) => address);
    expect(addresses).toEqual(['http://www.w3.org/2000/svg']);
    expect(body).not.toMatch(/<(?:script|img|iframe)[^>]+src=|@import|url\(|\son\w+=|\sstyle=/i);
    expect(body).not.toMatch(
      /innerHTML|insertAdjacentHTML|document\.write|localStorage|sessionStorage|cookie/,
    );
  });

  test('its script is valid JavaScript', async () => {
    const [script = ''] = inside((await page()).body, 'script');
    expect(() => new Function(script)).not.toThrow();
  });
});
