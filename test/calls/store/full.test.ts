/**
 * Redis at `maxmemory`: what keeps or ends calls passes, a new call is refused and changes nothing. The table is in
 * docs/guarantees.md; every script is run at the limit here.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { ScriptName } from '../../../src/calls/store/connection.js';
import { AppError } from '../../../src/errors.js';
import { describeEngines } from '../../support/engines.js';
import { dump } from '../../support/router.js';
import { holdRules, openStore, registration, type TestStore, testTimes } from '../../support/store.js';

type Policy = 'passes' | 'refused' | 'read-only';
type Run = (store: TestStore) => Promise<unknown>;

const assignment = { candidates: [], last: 'pool:gold' as const };
const explained = { callSid: '', merchantId: '', provider: 'twilio', flow: 'v2', template: 't' };
const newer = (epoch: string) => String(Number(epoch) + 1);
/** JSON of a tier configuration and the pools that follow from it, as `setTiers` takes them. */
const tiers = (text: string) => [text, 'replace', '', 'test', 'pool:gold', 'exclusive'];

/**
 * The cases of each script, in the state of `fill`: call `one` on an exclusive pod, `shared` on a shared one, `expired`
 * past its lease, `stale` whose record outlived its call. Together they reach every first write that a script can have.
 */
const cases: Record<ScriptName, Partial<Record<Policy, Record<string, Run>>>> = {
  allocate: {
    refused: {
      'on an exclusive pool': (store) => store.allocate('new', ['pool:gold']),
      'on a shared pool': (store) => store.allocate('new', ['pool:basic']),
      'on a merchant pool': (store) => store.allocate('new', ['merchant:vip']),
      'where an expired lease could be reclaimed': (store) => store.allocate('new', ['merchant:busy']),
      'with nothing free': (store) => store.allocate('new', []),
      'of a call whose record is left over': (store) => store.allocate('stale', ['pool:gold']),
    },
    passes: { 'of a live call': (store) => store.allocate('one', ['pool:gold']) },
  },
  release: {
    passes: {
      'of a call on an exclusive pod': (store) => store.calls.release('one'),
      'of a call on a shared pod': (store) => store.calls.release('shared'),
      'of a call whose caller could not connect': (store) =>
        store.calls.release('one', undefined, { reason: 'connect_failed' }),
    },
  },
  renew: { passes: { '': (store) => store.calls.renew('one') } },
  report: {
    passes: {
      'with a live call': (store) => store.calls.report('s', ['shared'], { asOfMs: store.nowMs() }),
      'with a forgotten call': (store) => store.calls.report('s', ['shared', 'forgotten']),
      'without its call': (store) => store.calls.report('g', []),
    },
  },
  drain: {
    passes: {
      'of an exclusive pod': (store) => store.calls.drain('h'),
      'of a shared pod': (store) => store.calls.drain('s'),
    },
  },
  undrain: {
    passes: {
      'of a draining pod': (store) => store.calls.undrain('drained'),
      'of any other': (store) => store.calls.undrain('lost'),
    },
  },
  register: {
    passes: {
      'of a new pod': (store) => store.pools.register(store.epoch, [registration('new')], assignment),
      'of a pod that registers itself': (store) =>
        store.pools.register('', [registration('new')], assignment),
      'of a replaced pod': ({ pools, epoch }) =>
        pools.register(epoch, [registration('g', 'pool:gold', { uid: 'another' })], assignment),
      'by a new leader': ({ pools, epoch }) => pools.register(newer(epoch), [registration('g')], assignment),
    },
  },
  blockSilent: {
    passes: {
      'of a pod that no longer reports': ({ pools, epoch }) => pools.blockSilent(epoch, 0, 10),
      'by a new leader': ({ pools, epoch }) => pools.blockSilent(newer(epoch), 0, 10),
    },
  },
  endFlapping: {
    passes: {
      'of a pod that has cooled off': ({ pools, epoch }) => pools.endFlapping(epoch, 10),
      'by a new leader': ({ pools, epoch }) => pools.endFlapping(newer(epoch), 10),
    },
  },
  suspend: {
    passes: {
      '': ({ pools, epoch }) => pools.suspend(epoch, 'not_ready', ['g', 's']),
      'of pods missing from a list': ({ pools, epoch }) => pools.suspend(epoch, 'unconfirmed', ['g']),
      'by a new leader': ({ pools, epoch }) => pools.suspend(newer(epoch), 'not_ready', ['g']),
    },
  },
  remove: {
    passes: {
      '': ({ pools, epoch }) => pools.remove(epoch, ['g', 's'], 'gone'),
      'by a new leader': ({ pools, epoch }) => pools.remove(newer(epoch), ['g'], 'gone'),
    },
  },
  sweep: {
    passes: {
      'of expired calls': ({ pools, epoch }) => pools.sweep(epoch, 'merchant:busy', 'calls', '0', 100),
      'of pods': ({ pools, epoch }) => pools.sweep(epoch, 'pool:gold', 'pods', '0', 100),
      'of available pods': ({ pools, epoch }) => pools.sweep(epoch, 'pool:gold', 'available', '0', 100),
      'by a new leader': ({ pools, epoch }) => pools.sweep(newer(epoch), 'pool:gold', 'calls', '0', 100),
    },
  },
  takeEpoch: { passes: { '': ({ pools }) => pools.takeEpoch('router-2') } },
  elect: {
    passes: { '': ({ connection }) => connection.run('elect', ['', 'router-1', 'w', 15_000, '', '', 0]) },
  },
  confirmRemovals: { passes: { '': ({ pools }) => pools.confirmRemovals('admin') } },
  setMerchant: {
    refused: {
      'of a new merchant': ({ connection }) => connection.run('setMerchant', ['acme', '{}', 'test']),
      'of a known merchant': ({ connection }) => connection.run('setMerchant', ['known', '{}', 'test']),
    },
    passes: { 'to delete': ({ connection }) => connection.run('setMerchant', ['known', '', 'test']) },
  },
  setTiers: {
    refused: {
      'that deletes a tier': ({ connection }) => connection.run('setTiers', tiers('{"gold":2}')),
      'that converts a pool': ({ connection }) =>
        connection.run('setTiers', ['{}', 'replace', '', 'test', 'pool:gold', 'shared:3']),
    },
  },
  importCalls: {
    refused: { '': ({ connection }) => connection.run('importCalls', [1, 1, 1, '[]', 1, 'h', 'one']) },
  },
  importIndex: {
    passes: { '': ({ connection }) => connection.run('importIndex', ['merchant:busy', '0', 10]) },
  },
  stampAlive: {
    passes: {
      '': ({ connection }) => connection.run('stampAlive', []),
      'after a gap': async ({ connection, advance }) => {
        await connection.run('stampAlive', []);
        advance(10_000);
        await connection.run('stampAlive', []);
      },
    },
  },
  serveWaiting: { refused: { 'while a call waits': (store) => store.waits.serve() } },
  refreshWaiting: { passes: { '': (store) => store.waits.refresh(['waits']) } },
  listWaiting: { 'read-only': { '': (store) => store.waits.calls('0', 10) } },
  explain: {
    'read-only': {
      'of a new call': ({ calls }) => calls.explain({ ...explained, chain: ['pool:gold'] }),
      'where an expired lease could be reclaimed': ({ calls }) =>
        calls.explain({ ...explained, chain: ['merchant:busy'] }),
    },
  },
  snapshot: { 'read-only': { '': (store) => store.calls.snapshot() } },
  podInfo: { 'read-only': { '': (store) => store.calls.pod('g') } },
  callInfo: { 'read-only': { '': (store) => store.calls.call('one') } },
  listPods: { 'read-only': { '': (store) => store.calls.pods('pool:gold', '0', 10) } },
  listCalls: { 'read-only': { '': (store) => store.calls.calls('pool:gold', '0', 10) } },
  audit: { 'read-only': { '': ({ connection }) => connection.run('audit', ['', 1, 'g', 'one']) } },
  auditKeys: { 'read-only': { '': ({ connection }) => connection.run('auditKeys', ['0', 10, 'voice:*']) } },
};

const runs = Object.entries(cases).flatMap(([script, byPolicy]) =>
  Object.entries(byPolicy).flatMap(([policy, byCase]) =>
    Object.entries(byCase).map(([name, run]) => ({ script, policy: policy as Policy, name, run })),
  ),
);

it('every script has its policy in the table of docs/guarantees.md, and a case that shows it', () => {
  const lua = new URL('../../../src/calls/store/lua/', import.meta.url);
  const names = readdirSync(lua).flatMap((file) => (file.endsWith('.lua') ? [basename(file, '.lua')] : []));
  const page = readFileSync(new URL('../../../docs/guarantees.md', import.meta.url), 'utf8');
  const section = page.split('## When Redis is full')[1]?.split('\n## ')[0] ?? '';
  const rows = [...section.matchAll(/^\| `(\w+)` \| ([^|]+?) \|/gm)].map(([, name, said = '']) => [
    name,
    [...said.matchAll(/passes|refused|read-only/g)].map(([word]) => word).sort(),
  ]);
  const shown = names.map((name) => {
    const key = name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
    return [name, Object.keys(cases[key as ScriptName] ?? {}).sort()];
  });
  expect(Object.fromEntries(rows)).toEqual(Object.fromEntries(shown));
});

describeEngines('a full store', (engine) => {
  let store: TestStore;
  const limit = (bytes: number) => engine.redis.config('SET', 'maxmemory', String(bytes));
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
    await store.register(['g', 'h', 'drained', 'lost'], 'pool:gold');
    await store.register(['s'], 'pool:basic');
    await store.register(['v'], 'merchant:vip');
    await store.register(['b'], 'merchant:busy');
    await store.allocate('expired', ['merchant:busy']);
    store.advance(testTimes.leaseTtlMs + 1);
    await store.calls.drain('drained');
    for (const pod of ['h', 'lost']) await engine.redis.srem('voice:pool:gold:available', pod);
    await store.allocate('one', ['pool:gold']);
    await store.allocate('shared', ['pool:basic']);
    await engine.redis.sadd('voice:pool:gold:available', 'h', 'stranger');
    await engine.redis.hset('voice:call:stale', { pod_name: 'h', fence: '1', renewed_at: 'once' });
    await engine.redis.hset('voice:merchant:config', 'known', '{}');
    await engine.redis.hset('voice:pod:g', 'uid', 'one');
    await engine.redis.sadd('voice:removals:held', 'v');
    await engine.redis.zadd('voice:reported', 1, 'lost', 5, 'h');
    await engine.redis.zadd('voice:reported:due', 4, 'lost');
    await engine.redis.zadd('voice:flapping', 1, 'v');
    await engine.redis.set('voice:pod:suspended:v', 'flapping');
    await engine.redis.hset('voice:pod:g', { released_at: 'then+00:00', failures: '2' });
    await store.ask('waits', [], { hold: holdRules() });
    await limit(1);
  });
  afterEach(async () => {
    await limit(0);
    store.close();
  });

  it.each(runs)('$policy: $script $name', async ({ policy, run }) => {
    const before = await dump(engine.redis);
    const outcome = await run(store).then(
      () => 'ok',
      (error: unknown) => error,
    );
    if (policy !== 'refused') expect(outcome).toBe('ok');
    else
      expect(outcome).toMatchObject({ code: 'store_full', status: 503, details: { retryAfterSeconds: 1 } });
    if (policy !== 'passes') expect(await dump(engine.redis)).toEqual(before);
    else expect((await store.calls.snapshot()).pools.length).toBeGreaterThan(0);
  });

  it.each([
    ['OOM', 'store_full'],
    ['READONLY', 'store_unavailable'],
    ['NOPROTO', 'internal'],
  ])('recognises the script error %s in the form of Redis 6.2: %s', async (word, code) => {
    const text = `ERR Error running script (call to f_0a9a): @user_script:41: @user_script: 41: -${word} not now.`;
    const answer = store.connection.command('test', (client) =>
      client.eval('return redis.error_reply(ARGV[1])', 0, text),
    );
    await expect(answer).rejects.toMatchObject({ code });
  });

  it('a live call keeps its pod past its lease, and its release gives the pod to a new one only with room', async () => {
    const refusal = async (work: Promise<unknown>) =>
      work.then(
        () => 'ok',
        (error: unknown) => (error instanceof AppError ? error.code : error),
      );
    for (let i = 0; i < 3; i++) {
      store.advance(testTimes.leaseTtlMs - 1);
      await store.calls.renew('one');
      await store.calls.report('s', ['shared']);
      expect(await refusal(store.allocate(`new-${i}`, ['merchant:vip', 'pool:gold']))).toBe('store_full');
    }
    // The holder of the expired lease renews at last: it has lost nothing.
    expect(await store.calls.renew('expired')).toMatchObject({ podName: 'b' });
    expect(await store.calls.release('one')).toMatchObject({ releasedToPool: 'pool:gold' });
    expect(await refusal(store.allocate('next', ['pool:gold']))).toBe('store_full');
    await limit(0);
    expect(await store.allocate('next', ['pool:gold'])).toMatchObject({ wasExisting: false });
    expect((await store.calls.call('shared')).podName).toBe('s');
  });
});
