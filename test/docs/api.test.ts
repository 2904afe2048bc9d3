/** Runs docs/api.md from top to bottom: every documented response is compared with a router's. */
import { readFileSync } from 'node:fs';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { undescribed, withApiReference } from '../../scripts/docs-api.mjs';
import { type ErrorCode, errorCodes } from '../../src/errors.js';
import type { LoopState } from '../../src/loop.js';
import { migrateRecords } from '../../src/main/workflows.js';
import { CallAlerts } from '../../src/observe/call-alerts.js';
import { type Engine, startPreferred } from '../support/engines.js';
import { type PostgresServer, postgresKinds } from '../support/postgres.js';
import { type Answer, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const text = readFileSync(new URL('../../docs/api.md', import.meta.url), 'utf8');
const headings = [...text.matchAll(/^### `([A-Z]+) (\S+)`$/gm)].map((match) => `${match[1]} ${match[2]}`);
const examples = [...text.matchAll(/```sh\n(curl [^\n]+)\n```(?:\n\n```(jsonc?|xml)\n(.*?)\n```)?/gs)].map(
  ([, command = '', kind, answer]) => ({ command, kind, answer }),
);

function words(command: string): string[] {
  return [...command.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    (match) => match[1] ?? match[2] ?? match[3] ?? '',
  );
}

/** As much of curl as the document uses: -X, -H, -d, -N and one address. */
function run(router: TestRouter, command: string): Promise<Answer> {
  const [, ...rest] = words(command);
  const headers: Record<string, string> = {};
  let [method, path, body] = ['', '', undefined as string | undefined];
  for (let i = 0; i < rest.length; i += 1) {
    const word = rest[i] as string;
    const next = rest[i + 1] ?? '';
    if (word === '-X') method = next;
    else if (word === '-d') body = next;
    else if (word === '-H') headers[next.split(': ')[0] as string] = next.split(': ')[1] as string;
    else if (word.startsWith('$ROUTER/api/v1')) path = word.slice('$ROUTER/api/v1'.length);
    if (['-X', '-d', '-H'].includes(word)) i += 1;
  }
  if (body !== undefined) headers['content-type'] ??= 'application/x-www-form-urlencoded';
  return router.ask(path, { method: method || (body ? 'POST' : 'GET'), headers, ...(body ? { body } : {}) });
}

/** What the page says: that of the error it shows, else success. */
function isExpectedStatus(status: number, answer: string, kind: string | undefined): boolean {
  const { code } = kind === 'json' ? (JSON.parse(answer) as { code?: ErrorCode }) : {};
  return code === undefined ? status >= 200 && status < 300 : status === errorCodes[code];
}

/** The beginning of a stream that has no end. */
async function beginningOf(url: string): Promise<{ status: number; text: string }> {
  const enough = new AbortController();
  const stream = await fetch(url, { signal: enough.signal });
  const { value } = (await stream.body?.getReader().read()) ?? {};
  enough.abort();
  return { status: stream.status, text: new TextDecoder().decode(value) };
}

/** Replaces values that differ from run to run by the name of their kind. */
function settled(value: unknown, key = ''): unknown {
  if (key.endsWith('_seconds') && typeof value === 'number') return '<seconds>';
  if (key === 'loops' || (key === 'version' && typeof value === 'string')) return `<${key}>`;
  if (Array.isArray(value)) return value.map((item) => settled(item));
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, settled(item, name)]));
  }
  if (typeof value === 'string' && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value)) return '<time>';
  if (typeof value === 'string' && /^\d{13}-\d+$/.test(value)) return '<event id>';
  if (typeof value === 'string' && /^\d{16}$/.test(value)) return '<fence>';
  // A generation has the digits of a second, a fence those of a microsecond.
  if (typeof value === 'number' && value > 1e9 && value < 1e11) return '<generation>';
  return typeof value === 'number' && value > 1e12 ? '<fence>' : value;
}

/** Of numbers that are never the same: which fields there are, also in the first of a list. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, 1).map(shapeOf);
  if (typeof value !== 'object' || value === null) return '<any>';
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, shapeOf(item)]));
}

/** A stuck one and a failed one, after the first sweeps have found nothing. */
async function addRecords(router: TestRouter, url: string): Promise<void> {
  await until(async () => {
    const { records, loops } = (await router.get('/status')).body;
    const swept = loops.filter((loop: LoopState) => /^records-.*-sweep$/.test(loop.name) && loop.rounds > 0);
    return swept.length === 2 && records.workflows[0].stuck === 0;
  }, 'the first sweeps are over');
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`
    INSERT INTO pages (id, url, page_processing_status, updated_at) VALUES
      (17, 'https://example.com/a', 'Processing', now() - interval '2 h'),
      (18, 'https://example.com/b', 'Failed', now())`);
  await client.end();
}

async function createTables(connectionString: string): Promise<void> {
  const pool = new pg.Pool({ connectionString });
  await migrateRecords(pool, { withWorkflows: true });
  await pool.end();
}

describe('docs/api.md', () => {
  let engine: Engine;
  let router: TestRouter;
  let postgres: PostgresServer | undefined;
  beforeAll(async () => {
    engine = await startPreferred();
    postgres = await postgresKinds.findLast((kind) => kind.available() === true)?.start();
    if (postgres) await createTables(postgres.url);
    router = await startTestRouter(engine.url, {
      STATIC_PODS: 'voice-agent-0=gold,voice-agent-1=basic',
      TIER_CONFIG: '{"gold":{"target":1},"basic":{"type":"shared","target":1,"max_concurrent":3}}',
      VOICE_AGENT_BASE_URL: 'wss://voice.example.com',
      POD_NAME: 'router-0',
      ...(postgres ? { DATABASE_URL: postgres.url, RECORDS_WORKFLOWS: 'page-curation' } : {}),
    });
    if (postgres) await addRecords(router, postgres.url);
  });
  afterAll(async () => {
    await router.stop();
    await engine.stop();
    await postgres?.end();
  });

  it('has a section for every operation of the API, and no other', async () => {
    const { paths } = (await router.get('/openapi.json')).body as { paths: Record<string, object> };
    const operations = Object.entries(paths).flatMap(([path, item]) =>
      Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect([...headings].sort()).toEqual([...operations, 'GET /api/v1/openapi.json'].sort());
  });

  it('has the fields and errors of this version (`npm run docs` writes them), and says what each is', async () => {
    const { body } = await router.get('/openapi.json');
    expect(withApiReference(text, body)).toBe(text);
    expect(undescribed(body)).toEqual([]);
  });

  it('names errors under the status that they have', () => {
    const named = [...text.matchAll(/^Errors: (.*)\.$/gm)].flatMap(([, list = '']) =>
      list.split('; ').flatMap((part) => {
        const [status, ...codes] = part.replaceAll(/[`,]/g, '').split(' ');
        return codes.map((code) => [code, Number(status)] as const);
      }),
    );
    expect(named.length).toBeGreaterThan(50);
    for (const [code, status] of named) expect(errorCodes[code as ErrorCode], code).toBe(status);
  });

  it('has answers that a router gives, for every example in order', async () => {
    expect(examples.length).toBeGreaterThan(30);
    for (const { command, kind, answer = '' } of examples) {
      if (command.startsWith('curl -N ')) {
        const address = words(command).find((word) => word.startsWith('$ROUTER')) ?? '';
        const stream = await beginningOf(address.replace('$ROUTER', router.url));
        expect(stream.status, command).toBe(200);
        expect(stream.text, command).toMatch(/^retry: /);
        continue;
      }
      // Without any PostgreSQL on this machine.
      if (!postgres && /\/(records|status)\b/.test(command)) continue;
      const got = await run(router, command);
      expect(isExpectedStatus(got.status, answer, kind), `${command} answered ${got.status}`).toBe(true);
      if (kind === 'json') {
        expect(settled(got.body), command).toEqual(settled(JSON.parse(answer)));
        expect(Object.keys(got.body.loops?.[0] ?? {})).toEqual(
          Object.keys(JSON.parse(answer).loops?.[0] ?? {}),
        );
      }
      if (kind === 'jsonc') expect(shapeOf(got.body), command).toEqual(shapeOf(JSON.parse(answer)));
      if (kind === 'xml') expect(got.text, command).toBe(answer);
    }
  });

  it('names every type of event that a script writes', () => {
    const scripts = readFileSync(
      new URL('../../src/calls/store/scripts.generated.ts', import.meta.url),
      'utf8',
    );
    const written = scripts.matchAll(/(?:\b(?:event|note)\(|\bend_wait_of\(sid, |'type', )'(\w+)'/g);
    const types = new Set([...written].map((match) => match[1]));
    expect(types.size).toBeGreaterThan(10);
    for (const often of ['no_pods', 'call_allocated', 'call_released']) expect(types).toContain(often);
    const [list = ''] = /^Types: .*$/m.exec(text) ?? [];
    expect([...types].filter((type) => !list.includes(`\`${type}\``))).toEqual([]);
  });

  it('names every alert of calls and loops, and no other', () => {
    const alerts = new CallAlerts(new Map());
    alerts.update({ storeError: undefined, noPods: 0, shed: 0, full: 0, leader: null, loops: [] }, 0);
    const section = text.split('### `GET /api/v1/alerts`')[1]?.split('```')[0] ?? '';
    const named = [...section.matchAll(/`((?:calls|pool|records)\.\w+)`/g)].map((match) => match[1]);
    expect(named.sort()).toEqual(
      alerts
        .conditions()
        .map(({ name }) => name)
        .sort(),
    );
  });
});
