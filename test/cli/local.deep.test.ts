/** Commands that need no router: config, doctor, serve, demo. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type EmbeddedValkey, startEmbeddedValkey } from '../../src/embedded/valkey.js';
import type { RunningRouter } from '../../src/main/router.js';
import { redisAt } from './redis.js';
import { documentOf, processRunner, routerEnv, start, startTestRouter, useBinary } from './support.js';

const binary = useBinary();
const run = processRunner(binary, () => 'http://127.0.0.1:1');

const pods = { POD_SOURCE: 'static', STATIC_PODS: 'agent-0' };

describe('config', () => {
  const secrets = {
    SMART_ROUTER_API_KEY: 'hidden-api-key-1234',
    SMART_ROUTER_ADMIN_KEY: 'hidden-admin-key-1234',
    TWILIO_AUTH_TOKEN: 'hidden-twilio',
    PLIVO_AUTH_TOKEN: 'hidden-plivo',
    EXOTEL_WEBHOOK_TOKEN: 'hidden-exotel',
    REDIS_URL: 'redis://user:hidden-redis@store:6379',
    DATABASE_URL: 'postgres://user:hidden-pg@db/records',
  };

  it('shows every value with its source', async () => {
    const { code, stdout, stderr } = await run('config', { env: { ...pods, LEASE_TTL: '5m' } });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^ {2}LEASE_TTL +environment {2}5m$/m);
    expect(stdout).toMatch(/^ {2}HTTP_PORT +default +8080$/m);
    expect(stdout).toMatch(/^ {2}PUBLIC_URL +default +-$/m);
  });

  it('hides secrets, also when something else is wrong', async () => {
    for (const args of ['config', 'config --json', 'config --mode demo']) {
      for (const env of [secrets, { ...secrets, HTTP_PORT: 'x', SMART_ROUTER_API_KEY: 'hidden' }]) {
        const { stdout, stderr } = await run(args, { env });
        expect(stdout + stderr).not.toContain('hidden');
        expect(stdout).toContain('********');
      }
    }
  });

  it('shows all problems together and exits 2', async () => {
    const env = { HTTP_PORT: 'x', LEASE_TTL: '2h' };
    const { code, stdout, stderr } = await run('config', { env });
    expect(code).toBe(2);
    expect(stdout).toMatch(/^ {2}HTTP_PORT +environment {2}x$/m);
    expect(stderr).toMatch(
      /^smart-router: the configuration has 2 problems:\n {2}HTTP_PORT must .*\n {2}CALL_INFO_TTL must .*\n$/,
    );
    const document = documentOf(await run('config --json', { env }));
    expect(document).toMatchObject({ success: false, code: 'configuration', mode: 'serve' });
    expect(document.problems).toHaveLength(2);
  });

  it('--mode demo shows the defaults of the demo', async () => {
    const { values } = documentOf(await run('config --mode demo --json')) as {
      values: { name: string; value: string }[];
    };
    expect(values.find(({ name }) => name === 'REDIS_URL')?.value).toBe('embedded');
    expect(await run('config --mode prod')).toMatchObject({ code: 2 });
  });

  it('--mode demo shows and validates the values that the demo sets', async () => {
    const env = { LEASE_TTL: '2h', POD_SOURCE: 'static', STATIC_PODS: 'a', LOG_LEVEL: 'info' };
    const { code, stdout, stderr } = await run('config --mode demo', { env });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^ {2}LEASE_TTL +demo +15s$/m);
    expect(stdout).toMatch(/^ {2}POD_SOURCE +demo +kubernetes$/m);
    expect(stdout).toMatch(/^ {2}LOG_LEVEL +environment +info$/m);
    expect(stdout).toMatch(/^ {2}HTTP_PORT +default +8080$/m);
    expect(await run('config --mode demo', { env: { DEMO_SPEED: 'x' } })).toMatchObject({ code: 2 });
  });
});

interface Check {
  name: string;
  status: string;
  message: string;
  hint?: string;
}

async function examine(
  env: NodeJS.ProcessEnv,
  args = '',
): Promise<{ code: number | null; checks: Check[]; of(name: string): Check | undefined }> {
  const ended = await run(`doctor --json ${args}`.trim(), { env: { ...pods, ...env } });
  const { checks } = documentOf(ended) as unknown as { checks: Check[] };
  return { code: ended.code, checks, of: (name) => checks.find((check) => check.name === name) };
}

describe('doctor', () => {
  let engine: EmbeddedValkey;
  let router: RunningRouter;
  const keys = { SMART_ROUTER_API_KEY: 'api-key-0123456789', SMART_ROUTER_ADMIN_KEY: 'admin-key-0123456789' };
  beforeAll(async () => {
    engine = await startEmbeddedValkey();
    router = await startTestRouter(engine.url, keys);
  });
  afterAll(async () => {
    await router.stop();
    await engine.stop();
  });

  it('finds nothing wrong with a router that runs, and both keys accepted', async () => {
    const env = { ...pods, ...keys, REDIS_URL: engine.url, VOICE_AGENT_BASE_URL: 'wss://voice.example.com' };
    const { code, checks, of } = await examine(env, `--url ${router.url}`);
    expect(checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(code).toBe(0);
    for (const name of [
      'node',
      'configuration',
      'embedded store',
      'store access',
      'store version',
      'store cluster',
      'store eviction',
      'store clock',
      'store data',
      'store tiers',
      'voice agents',
      'access',
      'router',
      'router ready',
      'router access',
      'router api key',
    ]) {
      expect(of(name), name).toMatchObject({ status: 'ok' });
    }
    // A busy machine gets a warning about a slow store.
    expect(of('store')?.message).toMatch(/answers in [\d.]+ ms$/);
    expect(of('store data')?.message).toContain('version 1');
  });

  it('prints the checks of the first example in docs/cli.md', async () => {
    const page = readFileSync('docs/cli.md', 'utf8');
    const [, example = ''] = page.split(
      '$ REDIS_URL=embedded POD_SOURCE=static STATIC_PODS=agent-0 smart-router doctor\n',
    );
    const documented = [...(example.split('```')[0] ?? '').matchAll(/^\w+ +(\S+( \S+)*)/gm)].map(
      ([, name]) => name,
    );
    const { checks } = await examine({ REDIS_URL: 'embedded' }, `--url ${router.url}`);
    const ofRouter = (name: string | undefined) => name?.startsWith('router') ?? false;
    expect(checks.map(({ name }) => name).filter((name) => !ofRouter(name))).toEqual(
      documented.filter((name) => !ofRouter(name)),
    );
  });

  it('is one line for each check, without colours in a pipe', async () => {
    const { code, stdout, stderr } = await run(`doctor --url ${router.url}`, {
      env: { ...pods, ...keys, REDIS_URL: engine.url, LEASE_TLL: '15s' },
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain('did you mean LEASE_TTL? See docs/configuration.md.\n');
    for (const line of stdout.trimEnd().split('\n')) expect(line).toMatch(/^(ok|warn|fail|skip) {2,4}\S/);
  });

  it('looks at Kubernetes where pods come from there, and fails with a hint when it cannot be found', async () => {
    const env = { REDIS_URL: engine.url, POD_SOURCE: '', STATIC_PODS: '', KUBECONFIG: '/nowhere/config' };
    const { code, of } = await examine(env, `--url ${router.url}`);
    expect(code).toBe(1);
    expect(of('configuration')).toMatchObject({ status: 'ok' });
    expect(of('kubernetes')).toMatchObject({
      status: 'fail',
      message: expect.stringContaining('/nowhere/config'),
      hint: expect.stringContaining('Set KUBECONFIG'),
    });
    const { of: ofStatic } = await examine({ REDIS_URL: engine.url }, `--url ${router.url}`);
    expect(ofStatic('kubernetes')).toBeUndefined();
    const { of: ofWrong } = await examine({ ...env, HTTP_PORT: 'x' }, `--url ${router.url}`);
    expect(ofWrong('kubernetes')).toBeUndefined();
  });

  it('skips what only another router here would need, while the one that answers is ready', async () => {
    const nothing = { POD_SOURCE: '', STATIC_PODS: '', HOME: '/nowhere', KUBERNETES_SERVICE_HOST: '' };
    const served = await examine({ ...nothing, ...keys }, `--url ${router.url}`);
    expect(served.of('router ready')).toMatchObject({ status: 'ok' });
    expect(served.of('kubernetes')).toMatchObject({
      status: 'skip',
      message: expect.stringContaining('KUBECONFIG is not set here, and the router at'),
    });
    // A local Redis may answer; if not, that is not a failure.
    const fine = served.of('store')?.message.includes('answers in')
      ? /answers in/
      : /^REDIS_URL is not set here/;
    expect(served.of('store')?.message).toMatch(fine);
    expect(served.of('store')?.status).not.toBe('fail');
    expect(served.code).toBe(0);
    const alone = await examine(nothing, '--url http://127.0.0.1:1');
    expect(alone.of('kubernetes')).toMatchObject({ status: 'fail' });
    expect(alone.code).toBe(1);
  });

  it('fails with a hint for a wrong configuration, and still looks at the store', async () => {
    const wrong = { HTTP_PORT: 'x', LEASE_TTL: '2h' };
    const { code, of, checks } = await examine({ ...wrong, ...keys, REDIS_URL: engine.url });
    expect(code).toBe(1);
    expect(checks.filter(({ name, status }) => name === 'configuration' && status === 'fail')).toHaveLength(
      2,
    );
    expect(of('store')?.message).toMatch(/answers in/);
    // It knows neither the keys nor the ports of such a configuration.
    for (const name of ['access', 'webhooks', 'voice agents', 'port']) expect(of(name)).toBeUndefined();
  });

  it('fails for a store that is not there, without its password', async () => {
    const { code, of, checks } = await examine({ REDIS_URL: 'redis://:hunter2@127.0.0.1:1' });
    expect(code).toBe(1);
    expect(of('store')).toMatchObject({
      status: 'fail',
      message: expect.stringContaining('connection refused by 127.0.0.1:1'),
    });
    expect(JSON.stringify(checks)).not.toContain('hunter2');
  });

  it('says that the store wants a password, or another one, and how to give it', async () => {
    const other = await startEmbeddedValkey();
    try {
      await redisAt(other.url, (redis) => redis.config('SET', 'requirepass', 's3cret'));
      const without = await examine({ REDIS_URL: other.url });
      expect(without.of('store')).toMatchObject({
        status: 'fail',
        message: expect.stringMatching(
          /authentication failed \(NOAUTH\): set the password in REDIS_URL, like redis:\/\/:PASSWORD@HOST:PORT/,
        ),
      });
      const wrong = await examine({ REDIS_URL: other.url.replace('//', '//:nope@') });
      expect(wrong.of('store')?.message).toContain(
        'authentication failed (WRONGPASS): correct the user or password in REDIS_URL',
      );
      expect(wrong.of('store')?.message).toContain('a password alone is written redis://:PASSWORD@HOST:PORT');
      const tls = await examine({ REDIS_URL: other.url.replace('redis:', 'rediss:') });
      expect(tls.of('store')?.message).toContain('for a server without TLS, REDIS_URL begins with redis://');
      const right = await examine({ REDIS_URL: other.url.replace('//', '//:s3cret@') });
      expect(right.of('store')?.message).toMatch(/answers in/);
      expect(JSON.stringify(right.checks)).not.toContain('s3cret');
    } finally {
      await other.stop();
    }
  });

  it('looks at the embedded store by starting it', async () => {
    const { of } = await examine({ REDIS_URL: 'embedded' });
    // A busy machine may get a warning about a slow store.
    expect(of('store')?.message).toMatch(/embedded Valkey answers in/);
    expect(of('store')?.status).not.toBe('fail');
    expect(of('store persistence')).toMatchObject({ status: 'warn' });
  });

  it('fails for an eviction policy that deletes calls, and for data of another version', async () => {
    const other = await startEmbeddedValkey();
    try {
      await redisAt(other.url, async (redis) => {
        await redis.config('SET', 'maxmemory-policy', 'allkeys-lru');
        await redis.set('voice:data:version', '9');
        await redis.set('voice:tier:config', '{"gold":-1}');
      });
      const { code, of } = await examine({ REDIS_URL: other.url });
      expect(code).toBe(1);
      expect(of('store eviction')).toMatchObject({ status: 'fail', message: 'the policy is allkeys-lru' });
      expect(of('store data')).toMatchObject({
        status: 'fail',
        message: expect.stringContaining('version 9'),
      });
      expect(of('store tiers')).toMatchObject({ status: 'fail' });
    } finally {
      await other.stop();
    }
  });

  it('warns of a store that is nearly full, and fails for one that is full', async () => {
    const other = await startEmbeddedValkey();
    try {
      // Large, so that the buffers of connections and the scripts do not count.
      await redisAt(other.url, (redis) => redis.set('other', 'x'.repeat(60_000_000)));
      await redisAt(other.url, async (redis) => {
        const used = Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
        await redis.config('SET', 'maxmemory', String(Math.round(used * 1.05)));
      });
      expect((await examine({ REDIS_URL: other.url })).of('store memory')).toMatchObject({ status: 'warn' });
      await redisAt(other.url, (redis) => redis.config('SET', 'maxmemory', '1'));
      const { code, of } = await examine({ REDIS_URL: other.url });
      expect([code, of('store memory')?.status]).toEqual([1, 'fail']);
    } finally {
      await other.stop();
    }
  });

  it('warns about valid values that are probably mistakes', async () => {
    const { of } = await examine({
      REDIS_URL: engine.url,
      TIER_CONFIG: '{"silver":1}',
      SMART_ROUTER_API_KEY: 'only-the-api-key-1',
      TWILIO_AUTH_TOKEN: 'token',
    });
    expect(of('voice agents')).toMatchObject({
      status: 'warn',
      message: expect.stringContaining('still the default'),
    });
    expect(of('webhooks')).toMatchObject({
      status: 'warn',
      message: expect.stringContaining('PUBLIC_URL is not set'),
    });
    expect(of('access')).toMatchObject({ status: 'warn' });
    expect(of('store tiers')).toMatchObject({ status: 'warn' });
  });

  it('compares the rules for waiting calls with the store, too', async () => {
    const other = await startEmbeddedValkey();
    try {
      const tiers = '{"tiers":{"gold":{"target":1}},"hold":{"max_wait":"60s"}}';
      const env = { REDIS_URL: other.url, TIER_CONFIG: tiers };
      const statusWith = async (hold: string) => {
        await redisAt(other.url, (redis) =>
          redis.mset('voice:tier:config', '{"gold":1}', 'voice:tier:hold', hold),
        );
        return (await examine(env)).of('store tiers')?.status;
      };
      expect(await statusWith('{"max_wait":"1m","max_waiting":1000}')).toBe('ok');
      expect(await statusWith('')).toBe('warn');
      expect(await statusWith('60s')).toBe('fail');
    } finally {
      await other.stop();
    }
  });

  it('says which port is taken when no router runs', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    try {
      const { code, of } = await examine({
        REDIS_URL: engine.url,
        HTTP_PORT: String(port),
        METRICS_PORT: 'off',
      });
      expect(code).toBe(1);
      expect(of('router')).toMatchObject({ status: 'warn' });
      expect(of('port')).toMatchObject({
        status: 'fail',
        message: expect.stringContaining('the port is in use'),
      });
    } finally {
      server.close();
    }
  });

  it('does not blame the keys while the store of the router is down', async () => {
    const other = await startEmbeddedValkey();
    const lone = await startTestRouter(other.url, { ...keys, REDIS_COMMAND_TIMEOUT: '1s' });
    try {
      await other.stop();
      const { of } = await examine({ REDIS_URL: other.url, ...keys }, `--url ${lone.url}`);
      expect(of('store')).toMatchObject({ status: 'fail' });
      expect(of('router ready')).toMatchObject({ status: 'fail' });
      expect(of('router api key')).toMatchObject({
        status: 'skip',
        message: expect.stringContaining('not checked'),
      });
      expect(of('router access')?.hint ?? '').not.toContain('Compare');
    } finally {
      await lone.stop();
    }
  });

  it('shows a sample ws_url and which variable sets its path', async () => {
    const env = { REDIS_URL: engine.url, VOICE_AGENT_BASE_URL: 'wss://voice.example.com' };
    expect((await examine(env)).of('voice agents')).toMatchObject({
      status: 'ok',
      message: expect.stringMatching(
        /agent-0 gets the ws_url wss:\/\/voice\.example\.com\/ws\/pod\/agent-0\/agent\/voice\/breeze-buddy\/twilio\/.*Go router; WS_URL_TEMPLATE/,
      ),
    });
    const own = await examine({ ...env, WS_URL_TEMPLATE: '{base}/talk/{pod}' });
    expect(own.of('voice agents')?.message).toContain(
      'wss://voice.example.com/talk/agent-0 (WS_URL_TEMPLATE)',
    );
  });

  it('fails for a key that the router refuses', async () => {
    const env = {
      REDIS_URL: engine.url,
      SMART_ROUTER_ADMIN_KEY: 'another-key-0123456789',
      SMART_ROUTER_API_KEY: 'yet-another-0123456789',
    };
    const { code, of } = await examine(env, `--url ${router.url}`);
    expect(code).toBe(1);
    expect(of('router access')).toMatchObject({ status: 'fail' });
    expect(of('router api key')).toMatchObject({ status: 'fail' });
    const none = await examine({ REDIS_URL: engine.url }, `--url ${router.url}`);
    expect(none.of('router access')).toMatchObject({ status: 'skip' });
  });
});

describe('serve', () => {
  it.each(['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const)(
    'runs until %s and ends with 0',
    async (signal) => {
      const router = start(binary, ['serve', '--json'], { env: { ...routerEnv, LOG_FORMAT: 'pretty' } });
      await router.shows('smart-router is listening');
      router.child.kill(signal);
      const { code, stdout, stderr } = await router.ended;
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      for (const line of stdout.trim().split('\n')) expect(() => JSON.parse(line)).not.toThrow();
    },
  );

  it('exits 2 with one line per problem, and no stack trace', async () => {
    const { code, stdout, stderr } = await run('serve', { env: { HTTP_PORT: 'x', REDIS_URL: 'y' } });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^smart-router: the configuration has 2 problems:\n( {2}\w+ must .*\n){2}$/);
    const ended = await run('serve --json', { env: { HTTP_PORT: 'x', REDIS_URL: 'y' } });
    expect(documentOf(ended)).toMatchObject({ success: false, code: 'configuration' });
  });

  it('exits 2 when its port is taken', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const { code, stderr } = await run('serve', { env: { ...routerEnv, HTTP_PORT: String(port) } });
    server.close();
    expect(code).toBe(2);
    expect(stderr).toContain(`HTTP_PORT ${port} on 127.0.0.1 is in use`);
  });
});

describe('demo', () => {
  it('runs for the given number of seconds', async () => {
    const { code, stdout, stderr } = await run('demo --seconds 1 --quiet --port 0 --seed 7', {
      env: { DEMO_SPEED: '10' },
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain('Smart Router');
  });

  it('exits 2 for a wrong configuration', async () => {
    const { code, stderr } = await run('demo', { env: { DEMO_SPEED: 'fast' } });
    expect(code).toBe(2);
    expect(stderr).toBe('smart-router: DEMO_SPEED must be a number from 0.1 to 20, got "fast"\n');
  });
});
