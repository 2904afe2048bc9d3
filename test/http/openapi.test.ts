/** The OpenAPI document: valid 3.1 in its structure, and complete: what the server has is in it, and nothing else. */
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { errorCodes } from '../../src/errors.js';
import type { App } from '../../src/http/context.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

type Json = Record<string, unknown>;
const methods = ['get', 'put', 'post', 'delete'];
/** Not API: the document itself, the probes without prefix, and the page with its files. */
const hidden = /^(\/api\/v1\/openapi\.json|\/(health|ready|metrics|assets\/\{file\})?)$/;

describeOneEngine('the OpenAPI document', (engine) => {
  let router: TestRouter;
  let app: App;
  // biome-ignore lint/suspicious/noExplicitAny: it is looked into from all sides.
  let document: any;
  beforeEach(async () => {
    const extend = async (server: App) => {
      app = server;
    };
    router = await startTestRouter(engine.url, {}, { extend });
    document = (await router.get('/openapi.json')).body;
  });
  afterEach(() => router.stop());
  const operations = (): [path: string, method: string, operation: Json][] =>
    Object.entries(document.paths as Record<string, Record<string, Json>>).flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => [path, method, operation] as [string, string, Json]),
    );

  it('is OpenAPI 3.1 by its structure', () => {
    expect(document.openapi).toMatch(/^3\.1\.\d$/);
    expect(document.info).toMatchObject({
      title: 'Smart Router',
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
    });
    expect(document.components.securitySchemes.key).toEqual({ type: 'http', scheme: 'bearer' });
    for (const [path, method, operation] of operations()) {
      const where = `${method} ${path}`;
      expect(methods, where).toContain(method);
      expect(operation.summary, where).toMatch(/^.{5,}$/);
      expect(operation.tags, where).toHaveLength(1);
      expect(Object.keys(operation.responses as Json).length, where).toBeGreaterThan(0);
      for (const [status, response] of Object.entries(operation.responses as Record<string, Json>)) {
        expect(status, where).toMatch(/^([1-5]\d\d|default)$/);
        expect(response.description, where).toEqual(expect.any(String));
      }
      const inPath = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
      const parameters = (operation.parameters ?? []) as { name: string; in: string; required?: boolean }[];
      const declared = parameters.filter((one) => one.in === 'path');
      expect(
        declared.map(({ name }) => name),
        where,
      ).toEqual(inPath);
      expect(
        declared.every(({ required }) => required === true),
        where,
      ).toBe(true);
    }
    expect(JSON.stringify(document)).not.toMatch(/"\$ref":"(?!#\/)/);
  });

  it('says which operations need a key', () => {
    for (const [path, method, operation] of operations()) {
      const open = /\/(health|ready|metrics|session)$|\/(twilio|plivo|exotel)\//.test(path);
      expect([`${method} ${path}`, operation.security]).toEqual([
        `${method} ${path}`,
        open ? [] : [{ key: [] }],
      ]);
    }
  });

  it('has every route of the server, and only those', () => {
    const routes = new Set<string>();
    const walk = (line: string) => /^[\s│├└─]*(\S+) \(([A-Z, ]+)\)$/.exec(line);
    let prefix: string[] = [];
    for (const line of app.printRoutes({ commonPrefix: false }).split('\n')) {
      const depth = Math.floor(line.search(/[^\s│├└─]/) / 4);
      const [, part, list] = walk(line) ?? [undefined, line.replace(/^[\s│├└─]+/, ''), ''];
      prefix = [...prefix.slice(0, Math.max(0, depth - 1)), part ?? ''];
      const path = prefix.join('').replace(/:(\w+)/g, '{$1}');
      for (const method of (list ?? '').split(', ').filter((each) => each && each !== 'HEAD')) {
        if (!hidden.test(path)) routes.add(`${method.toLowerCase()} ${path}`);
      }
    }
    expect(routes.size).toBeGreaterThan(25);
    expect(
      operations()
        .map(([path, method]) => `${method} ${path}`)
        .sort(),
    ).toEqual([...routes].sort());
  });

  it('describes errors by one shape, and every code is explained in docs/errors.md', () => {
    for (const [path, method, operation] of operations()) {
      for (const [status, response] of Object.entries(operation.responses as Record<string, Json>)) {
        if (Number(status) < 400) continue;
        const { schema } =
          (response.content as Record<string, { schema: { required: string[] } }>)['application/json'] ?? {};
        expect(schema?.required, `${method} ${path} ${status}`).toEqual(['success', 'error', 'code']);
      }
    }
    const text = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8');
    for (const code of Object.keys(errorCodes)) expect(text).toContain(`\`${code}\``);
  });
});
