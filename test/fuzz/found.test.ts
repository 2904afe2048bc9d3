/** What fuzzing has found, each as the one example that shows it. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { run } from '../../src/cli/index.js';
import { systemClock } from '../../src/clock.js';
import { KubeError } from '../../src/cluster/kubernetes/api.js';
import { kubernetesSource } from '../../src/cluster/kubernetes/source.js';
import { describeConfig, loadConfig } from '../../src/config/config.js';
import { showValue } from '../../src/config/tiers.js';
import { ConfigError } from '../../src/errors.js';
import { KubernetesLock } from '../../src/leadership/kubernetes-lock.js';
import { ObservedLock } from '../../src/leadership/observed-lock.js';
import { defineWorkflow } from '../../src/records/workflow.js';
import { capture } from '../cli/capture.js';
import { startScripted } from '../cli/support.js';
import { fixture } from '../client/scripted-router.js';
import { kubeconfig, kubernetes } from '../cluster/fixture.js';
import { silentLog } from '../pool/fixture.js';
import { describeOneEngine } from '../support/engines.js';
import { ManualClock } from '../support/manual-clock.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { expectGood, unhurried } from './answers.js';

describeOneEngine('a running router', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, unhurried);
  });
  afterEach(() => router.stop());

  it('repeats no character in a refusal that ends the line or turns it around', async () => {
    const answer = await router.post('/renew', { call_sid: '\u202egnp.exe\u2028' });
    expect(answer.body.error).toContain('\\u202egnp.exe\\u2028');
    expectGood(answer, 'a call id');
    expect(showValue('\u007f\u009f')).toBe('"\\u007f\\u009f"');
  });

  it('says the first of a thousand problems in its sentence, and lists a hundred', async () => {
    const answer = await router.put('/tiers', { tiers: { gold: {} }, default_chain: Array(1000).fill(1) });
    expect(answer.body.error).toMatch(/default_chain\[4\].*; and 995 more$/);
    expect(answer.body.problems).toHaveLength(100);
    expectGood(answer, 'a chain');
  });

  it.each(['', 'x', '1.5', '1e400', 'nan', '-1'])(
    'works when the version of the tiers was set to %j by hand',
    async (version) => {
      await engine.redis.set('voice:tier:version', version);
      expect((await router.get('/status')).body.tier_version).toBe(0);
      expect((await router.get('/tiers')).body.version).toBe(0);
      const { status, body } = await router.put('/tiers', { gold: 1 });
      expect({ status, version: body.version }).toEqual({ status: 200, version: 1 });
    },
  );

  it('works when a key of the configuration is a list, and the next write repairs it', async () => {
    for (const key of ['voice:tier:config', 'voice:tier:version', 'voice:merchant:config'])
      await engine.redis.multi().del(key).rpush(key, 'x').exec();
    expect((await router.get('/tiers')).body.default_chain).toEqual(['gold', 'basic']);
    expect((await router.get('/merchants')).body.merchants).toEqual([]);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
    expect((await router.put('/merchants/acme', { tier: 'basic' })).status).toBe(200);
    expect((await router.put('/tiers', { gold: 2, basic: 1 })).status).toBe(200);
    expect((await router.get('/merchants')).body.merchants).toHaveLength(1);
  });

  it('does not take a merchant without a name for every call without a merchant', async () => {
    await engine.redis.hset('voice:merchant:config', '', '{"fallback":["basic"]}');
    expect((await router.get('/merchants')).body.merchants).toEqual([]);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).body.source_pool).toBe('pool:gold');
  });
});

describe('a Kubernetes API that answers in other types', () => {
  const serving = async (body: string) => {
    const k8s = kubernetes();
    const server = await k8s.serve((_, response) => response.end(body));
    const api = await k8s.connect(kubeconfig(server));
    return { api, stop: () => k8s.stop() };
  };

  it('does not make a follower take the lock of a holder whose duration cannot be read', async () => {
    const lease = {
      metadata: { resourceVersion: '1' },
      spec: { holderIdentity: 'you', leaseDurationSeconds: 'long' },
    };
    const { api, stop } = await serving(JSON.stringify(lease));
    const lock = new KubernetesLock({ api, namespace: 'default', name: 'leader', clock: systemClock });
    const record = await lock.read(5000);
    expect(record).toMatchObject({ holder: 'you', durationMs: 0 });
    const observed = new ObservedLock(new ManualClock(), 15_000);
    observed.observe(record);
    expect(observed.isFreeFor('me')).toBe(false);
    await stop();
  });

  it.each(['null', '{}', '[]', '{"metadata":null}', '{"metadata":{"resourceVersion":1}}'])(
    '%s is not a Lease',
    async (body) => {
      const { api, stop } = await serving(body);
      const lock = new KubernetesLock({ api, namespace: 'default', name: 'leader', clock: systemClock });
      await expect(lock.read(5000)).rejects.toThrow('is not a Lease');
      await stop();
    },
  );

  it('has no version that is a number, and no message of a megabyte', async () => {
    const list = await serving('{"metadata":{"resourceVersion":7,"continue":{}},"items":[]}');
    const options = {
      namespace: 'default',
      labelSelector: 'a',
      silenceMs: 5000,
      clock: systemClock,
      log: silentLog,
    };
    const { signal } = new AbortController();
    expect(await kubernetesSource({ ...options, api: list.api }).list(signal)).toEqual({
      pods: [],
      version: '',
    });
    await list.stop();
    const event = { type: 'ERROR', object: { message: 'x'.repeat(1_000_000) } };
    const watch = await serving(`${JSON.stringify(event)}\n`);
    const changes = kubernetesSource({ ...options, api: watch.api }).watch?.('1', signal);
    const error = await changes?.next().catch((thrown: Error) => thrown);
    expect(error).toBeInstanceOf(KubeError);
    expect((error as Error).message.length).toBeLessThan(1000);
    await watch.stop();
  });
});

describe('a configuration', () => {
  it.each(['HTTP_HOST', 'STATIC_PODS', 'TIER_CONFIG'])(
    'with an address in %s does not show its password',
    (name) => {
      const env = { [name]: 'redis://user:hunter2@host:6379' };
      expect(() => loadConfig(env)).toThrow(ConfigError);
      expect(() => loadConfig(env)).not.toThrow(/hunter2/);
      expect(JSON.stringify(describeConfig(env))).not.toContain('hunter2');
    },
  );

  it('of a workflow with values that do not even become a text is refused as one', () => {
    const odd = { toString: 0 } as unknown as string;
    const define = () => defineWorkflow({ timeout: odd, orderBy: odd, 'a\nb': 1 } as never);
    expect(define).toThrow(ConfigError);
    expect(define).toThrow(/timeout must be a duration[\s\S]*/);
    try {
      define();
    } catch (error) {
      for (const problem of (error as ConfigError).problems) expect(problem).not.toContain('\n');
    }
  });
});

describe('the command line', () => {
  const shownBy = async (args: string[], url = 'http://127.0.0.1:1') => {
    const { streams, out, err } = capture();
    const code = await run(args, { SMART_ROUTER_URL: url }, { streams });
    return { code, shown: out() + err() };
  };

  it('writes no control sequence of an argument to a terminal', async () => {
    const { code, shown } = await shownBy(['\u001b[2Jx']);
    expect(code).toBe(2);
    expect(shown).toContain('\\u001b[2Jx');
    expect(shown).not.toContain('\u001b');
  });

  it('rejects a response of another shape as not the router’s', async () => {
    const { url, stop } = await startScripted(() => ({ json: { events: '' } }));
    const { code, shown } = await shownBy(['events'], url);
    await stop();
    expect(code).toBe(6);
    expect(shown).toContain('not a Smart Router of this version');
  });
});

describe('the client', () => {
  it('quotes neither code nor message of a server that is not the router', async () => {
    const { router, another } = await fixture();
    const key = 'a_key_of_lower_case_words_that_is_longer_than_any_code_of_the_router_could_be';
    const messageFor = async (json: object) => {
      router.queue.push({ status: 404, json });
      const error = await another({ retries: 0, apiKey: key })
        .allocate({ callSid: 'CA1' })
        .catch((thrown: Error) => thrown);
      return (error as Error).message;
    };
    expect(await messageFor({ code: 'constructor', error: 'no' })).toBe(
      'allocate CA1: the router answered 404 constructor: no',
    );
    expect(await messageFor({ code: key, error: 'no' })).toContain('unexpected_status');
    expect((await messageFor({ code: 'x', error: '.'.repeat(1_000_000) })).length).toBeLessThan(2500);
  });
});
