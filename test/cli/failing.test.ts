import { createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { startPreferred } from '../support/engines.js';
import {
  documentOf,
  type Handler,
  runner,
  start,
  startScripted,
  startTestRouter,
  useBinary,
  useStore,
} from './support.js';

const binary = useBinary();
const store = useStore();
const nowhere = runner(() => 'http://127.0.0.1:1');
const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function scripted(handler: Handler): Promise<ReturnType<typeof runner>> {
  const server = await startScripted(handler);
  stops.push(server.stop);
  return runner(() => server.url);
}

const looksLikeAStack = /^\s+at .*[:(]\d+/m;

describe('a router that is not there', () => {
  it.each([
    'status',
    'pods',
    'pods pod-a',
    'calls',
    'calls CA1',
    'allocate CA1',
    'release CA1',
    'drain pod-a',
    'drain pod-a --wait',
    'undrain pod-a',
    'tiers get',
    'tiers set {"gold":1}',
    'merchants list',
    'merchants get acme',
    'merchants set acme --tier gold',
    'merchants delete acme',
  ])('%s exits 6 with one line that says what to do', async (command) => {
    const { code, stdout, stderr } = await nowhere(command);
    expect({ code, stdout }).toEqual({ code: 6, stdout: '' });
    expect(stderr).toBe(
      'smart-router: cannot reach the router at http://127.0.0.1:1: connection refused. Is it running? Start one with `npm start` (demo) or `smart-router serve`, or set --url or SMART_ROUTER_URL.\n',
    );
  });

  it('is one JSON document on stdout with --json, and nothing on stderr', async () => {
    const ended = await nowhere('status --json');
    expect(ended).toMatchObject({ code: 6, stderr: '' });
    expect(documentOf(ended)).toEqual({ success: false, error: expect.any(String), code: 'unreachable' });
  });

  it('--url wins over SMART_ROUTER_URL, and a wrong one is named', async () => {
    expect((await nowhere('status --url http://127.0.0.1:2/api/v1/')).stderr).toContain(
      'at http://127.0.0.1:2:',
    );
    expect(await nowhere('status --url localhost:8080')).toMatchObject({ code: 2, stdout: '' });
    const secret = await nowhere('status --url http://me:hunter2@127.0.0.1:1');
    expect(secret.code).toBe(2);
    expect(secret.stderr).not.toContain('hunter2');
    const env = { SMART_ROUTER_URL: 'nonsense' };
    expect((await nowhere('status', { env })).stderr).toContain('SMART_ROUTER_URL must be a URL');
  });

  it('prints a stack only with DEBUG=smart-router', async () => {
    expect((await nowhere('status')).stderr).not.toMatch(looksLikeAStack);
    expect((await nowhere('status', { env: { DEBUG: 'smart-router' } })).stderr).toMatch(looksLikeAStack);
  });
});

describe('something else where the router should be', () => {
  it('is not mistaken for a router', async () => {
    const page = await scripted(() => ({ text: '<html>Welcome</html>' }));
    const { code, stderr } = await page('status');
    expect(code).toBe(6);
    expect(stderr).toMatch(/is not a Smart Router: got status 200 from \/status\. Check --url/);
    const redirect = await scripted(() => ({ status: 302, text: '' }));
    expect((await redirect('calls --json')).stdout).toContain('"code": "not_a_router"');
    const list = await scripted(() => ({ json: [] }));
    expect(await list('tiers get')).toMatchObject({ code: 6, stdout: '' });
  });

  it('may use another protocol than HTTP', async () => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.end('+PONG\r\n', () => socket.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    stops.push(() => new Promise((resolve) => server.close(() => resolve())));
    const { port } = server.address() as { port: number };
    const { code, stderr } = await nowhere(`status --url http://127.0.0.1:${port}`);
    expect(code).toBe(6);
    expect(stderr).toContain('does not speak HTTP');
  });

  it('that never answers is given up after --timeout', async () => {
    const silent = await scripted(() => undefined);
    const { code, stderr } = await silent('status --timeout 300ms');
    expect(code).toBe(6);
    expect(stderr).toContain('did not answer within 300ms');
  });

  it('cannot move the cursor of the terminal with a name', async () => {
    const call = {
      pod_name: 'p',
      source_pool: 'pool:gold',
      merchant_id: '',
      allocated_at: '',
      lease_expires_at: '',
    };
    const evil = await scripted(() => ({
      json: { calls: [{ ...call, call_sid: 'a\u001b[2J\u202eb' }], cursor: null },
    }));
    const { code, stdout } = await evil('calls');
    expect(code).toBe(0);
    expect(stdout).toContain('a?[2J?b');
    const tiers = await scripted(() => ({ json: { tiers: {}, default_chain: [], version: '1\u001b[2J' } }));
    expect((await tiers('tiers get')).stdout).toContain('version  1?[2J');
  });

  it('that answers with an unknown error is a plain failure', async () => {
    const strange = await scripted(() => ({
      status: 500,
      json: { success: false, error: 'odd', code: 'internal' },
    }));
    expect(await strange('status')).toEqual({ code: 1, stdout: '', stderr: 'smart-router: odd\n' });
  });
});

describe('lists and waits that take several requests', () => {
  it('reads all pages, and an entry that comes twice once', async () => {
    const call = (n: number) => ({
      call_sid: `CA${n}`,
      pod_name: 'p',
      source_pool: 'pool:gold',
      merchant_id: '',
      allocated_at: `2026-01-0${n}T00:00:00Z`,
      lease_expires_at: '2026-01-09T00:00:00Z',
    });
    const paged = await scripted(({ url = '' }) => {
      if (url.includes('cursor=pool%3Agold%2C7'))
        return { json: { calls: [call(1), call(2)], cursor: null } };
      return { json: { calls: [call(3), call(2)], cursor: 'pool:gold,7' } };
    });
    const { calls, total } = documentOf(await paged('calls --json')) as {
      calls: { call_sid: string }[];
      total: number;
    };
    expect(calls.map(({ call_sid }) => call_sid)).toEqual(['CA1', 'CA2', 'CA3']);
    expect(total).toBe(3);
  });

  it('drain --wait asks again when the router shuts down or breaks off in the middle', async () => {
    const waits: string[] = [];
    const rolling = await scripted(({ url = '' }, body) => {
      if (url.includes('/pod/'))
        return { json: { pod_name: 'p', calls: ['CA1'], is_draining: true, draining_until: null } };
      waits.push(JSON.parse(body).wait);
      if (waits.length === 2)
        return { status: 503, json: { success: false, error: 'stopping', code: 'shutting_down' } };
      return { json: { success: true, pod_name: 'p', active_calls: waits.length < 3 ? 1 : 0, message: '' } };
    });
    const { code, stdout } = await rolling('drain p --wait 20s');
    expect(code).toBe(0);
    expect(stdout).toContain('Pod p is draining and has no calls');
    const [first = 0, second = 0, third = 0] = waits.map((wait) => Number.parseInt(wait, 10));
    expect(first > second && second > third).toBe(true);
  });

  it.each([
    ['1500ms', 4, 'Pod p not found'],
    ['30s', 0, 'Pod p is draining and has no calls'],
  ])(
    'drain --wait %s does not take a pod that the store has lost as one without calls',
    async (wait, code, text) => {
      let asked = 0;
      const lossy = await scripted(({ url = '' }) => {
        const pod = { pod_name: 'p', calls: [], is_draining: true, draining_until: null };
        if (url.includes('/pod/'))
          return { json: { ...pod, last_report_at: asked > 3 ? '2026-01-01T00:00:00Z' : null } };
        asked += 1;
        if (asked === 2 || code > 0)
          return asked === 1
            ? { json: { success: true, pod_name: 'p', active_calls: 1, message: '' } }
            : { status: 404, json: { success: false, error: 'Pod p not found', code: 'pod_not_found' } };
        return { json: { success: true, pod_name: 'p', active_calls: asked === 1 ? 1 : 0, message: '' } };
      });
      const ended = await lossy(`drain p --wait ${wait}`);
      expect(ended.stdout + ended.stderr).toContain(text);
      expect(ended.code).toBe(code);
      if (code === 0) expect(asked).toBeGreaterThan(3);
    },
  );
});

describe('keys', () => {
  const keys = { SMART_ROUTER_API_KEY: 'api-key-0123456789', SMART_ROUTER_ADMIN_KEY: 'admin-key-0123456789' };
  let router: RunningRouter;
  const run = runner(() => router.url);
  beforeAll(async () => {
    router = await startTestRouter(await store.emptied(), keys);
  });
  afterAll(() => router.stop());

  it('are read from the environment, the admin key first', async () => {
    expect(await run('status', { env: keys })).toMatchObject({ code: 0, stderr: '' });
    const agent = { SMART_ROUTER_API_KEY: keys.SMART_ROUTER_API_KEY };
    expect(await run('allocate CA1', { env: agent })).toMatchObject({ code: 0 });
    const refused = await run('status', { env: agent });
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain(
      'the router rejected the key in SMART_ROUTER_API_KEY: this requires the admin key',
    );
  });

  it('are named when missing, and never printed when wrong', async () => {
    const none = await run('status --json');
    expect(none.code).toBe(1);
    expect(documentOf(none)).toMatchObject({
      code: 'unauthorized',
      error: expect.stringContaining('set SMART_ROUTER_ADMIN_KEY'),
    });
    const wrong = await run('status', { env: { SMART_ROUTER_ADMIN_KEY: 'not-the-key-0123456789' } });
    expect(wrong.code).toBe(1);
    expect(wrong.stderr).not.toContain('not-the-key');
    const misspelt = await run('status', { env: { SMART_ROUTER_ADMINKEY: 'admin-key-0123456789' } });
    expect(misspelt.code).toBe(wrong.code);
    expect(misspelt.stderr).toMatch(
      /^warning: SMART_ROUTER_ADMINKEY is not a variable .*: did you mean SMART_ROUTER_ADMIN_KEY\?\nsmart-router: /,
    );
    const broken = await run('status', { env: { SMART_ROUTER_ADMIN_KEY: 'two lines\n' } });
    expect(broken.code).toBe(2);
    expect(broken.stderr).not.toContain('two lines');
  });
});

describe('an unreachable store', () => {
  let router: RunningRouter;
  const run = runner(() => router.url);
  beforeAll(async () => {
    const engine = await startPreferred();
    router = await startTestRouter(engine.url, {
      REDIS_COMMAND_TIMEOUT: '200ms',
      SHUTDOWN_TIMEOUT: '1s',
    });
    await engine.stop();
  });
  afterAll(() => router.stop());

  it('makes status exit 6, with the rest of its output', async () => {
    const { code, stdout, stderr } = await run('status');
    expect(code).toBe(6);
    expect(stdout).toMatch(/^store {3}down$/m);
    expect(stderr).toContain('is unreachable: ');
    expect(documentOf(await run('status --json'))).toMatchObject({
      success: false,
      code: 'store_unavailable',
      status: 'down',
      loops: expect.any(Array),
    });
  });

  it('makes other commands exit 6', async () => {
    expect(await run('allocate CA1')).toMatchObject({ code: 6, stdout: '' });
    expect(await run('calls')).toMatchObject({ code: 6, stdout: '' });
  });
});

describe('wrong usage', () => {
  it.each([
    ['statsu', "unknown command 'statsu'. Did you mean status?", 'smart-router --help'],
    ['status --jsno', "unknown option '--jsno'. Did you mean --json?", 'smart-router status --help'],
    ['tiers gte', "unknown command 'gte'. Did you mean get?", 'smart-router tiers --help'],
    ['drain', "missing required argument 'pod'", 'smart-router drain --help'],
    [
      'status now',
      "too many arguments for 'status'. Expected 0 arguments but got 1.",
      'smart-router status --help',
    ],
    [
      'pods --limit 0',
      "option '--limit <n>' argument '0' is invalid. It must be a whole number from 1 to 10000000.",
      'smart-router pods --help',
    ],
    [
      'pods --state happy',
      "option '--state <state>' argument 'happy' is invalid. Allowed choices are free, busy, draining, blocked.",
      'smart-router pods --help',
    ],
    [
      'drain --wait pod-a',
      "option '--wait [duration]' argument 'pod-a' is invalid. It must be a duration like 30s or 5m, at most 24h, after the pod: drain POD --wait 5m.",
      'smart-router drain --help',
    ],
    [
      'serve --workers 0',
      "option '--workers <number>' argument '0' is invalid. It must be a whole number from 1 to 128, or auto.",
      'smart-router serve --help',
    ],
    [
      'release CA1 --fence x',
      "option '--fence <n>' argument 'x' is invalid. It must be a whole number from 1 to 9007199254740991.",
      'smart-router release --help',
    ],
  ])('%s exits 2 and says what would be right', async (command, line, help) => {
    const { code, stdout, stderr } = await nowhere(command);
    expect({ code, stdout, stderr }).toEqual({
      code: 2,
      stdout: '',
      stderr: `smart-router: ${line}\nSee \`${help}\`.\n`,
    });
  });

  it('is JSON with --json', async () => {
    const ended = await nowhere('statsu --json');
    expect(ended).toMatchObject({ code: 2, stderr: '' });
    expect(documentOf(ended)).toEqual({
      success: false,
      error: "unknown command 'statsu'. Did you mean status?",
      code: 'usage',
    });
  });

  it('without a command prints the help to stderr and exits 2', async () => {
    for (const args of [[], ['tiers'], ['merchants']]) {
      const { code, stdout, stderr } = await nowhere(args);
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      expect(stderr).toMatch(/^Usage: smart-router/);
    }
  });

  it.each([
    ['{"gold":', 'the argument is not valid JSON'],
    ['/no/such/file.json', 'cannot read /no/such/file.json: no such file'],
    ['/', 'cannot read /: it is a directory'],
    ['-', 'standard input is not valid JSON'],
    ['[1]', 'must be a JSON object'],
  ])('tiers set %s exits 2', async (input, message) => {
    const { code, stderr } = await nowhere(['tiers', 'set', input]);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
    expect(stderr).not.toMatch(looksLikeAStack);
  });

  it('refuses more than the router takes', async () => {
    const { code, stderr } = await nowhere('tiers set -', { input: `{"a":"${'x'.repeat(70_000)}"}` });
    expect(code).toBe(2);
    expect(stderr).toContain('standard input is larger than 64 KiB');
  });
});

describe('a closed output pipe', () => {
  it('ends the command quietly', async () => {
    const calls = Array.from({ length: 20_000 }, (_, n) => ({
      call_sid: `CA${n}`,
      pod_name: 'p',
      source_pool: 'pool:gold',
      merchant_id: '',
      allocated_at: '',
      lease_expires_at: '',
    }));
    const server = await startScripted(() => ({ json: { calls, cursor: null } }));
    stops.push(server.stop);
    const command = start(binary, ['calls', '--url', server.url]);
    command.child.stdout?.once('data', () => command.child.stdout?.destroy());
    const { code, stderr } = await command.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  });
});
