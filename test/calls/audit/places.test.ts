/** Where an audit looks: on a Cluster at the node that has our keys, and nowhere at the keys of others. */
import { afterEach, expect, it } from 'vitest';
import { Auditor } from '../../../src/calls/audit/auditor.js';
import { describeOneEngine, nativeAvailable, redisCluster } from '../../support/engines.js';
import { openStore, type TestStore } from '../../support/store.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function open(url: string, prefix: string): Promise<TestStore> {
  const store = await openStore(url, { prefix });
  cleanups.push(() => store.close());
  await store.register(['a', 'b'], 'pool:gold');
  await store.register(['s'], 'pool:basic');
  for (const sid of ['1', '2', '3']) await store.allocate(sid, ['pool:gold', 'pool:basic']);
  return store;
}

const audit = (store: TestStore) => new Auditor(store.connection).audit();

it('Cluster: finds every pod and call in the slot of the prefix, and the violations there', async (test) => {
  const available = nativeAvailable();
  test.skip(available !== true, String(available));
  const cluster = await redisCluster(3);
  cleanups.push(cluster.stop);
  const store = await open(cluster.url, '{voice}:');
  expect(await audit(store)).toMatchObject({
    looked_at: { pods: 3, calls: 3 },
    violation_count: 0,
    pending_count: 0,
  });
  await store.connection.command('test', (client) => client.sadd('{voice}:pool:gold:assigned', 'ghost'));
  await store.connection.command('test', (client) => client.set('{voice}:notes', 'x'));
  expect(await audit(store)).toMatchObject({
    violations: [{ kind: 'assigned_unregistered', pod_name: 'ghost' }],
    pending: [{ kind: 'unknown_key' }],
  });
});

describeOneEngine('an audit beside others', (engine) => {
  it('reads no key of another program or installation, also if the prefix is a glob pattern', async () => {
    const store = await open(engine.url, 'v[o]ice*:');
    const other = await open(engine.url, 'voice-two:');
    await engine.redis.set('foreign', 'x');
    await engine.redis.set('voice-two:notes', 'x');
    expect(await audit(store)).toMatchObject({
      looked_at: { pods: 3, calls: 3 },
      violation_count: 0,
      pending_count: 0,
    });
    expect(await audit(other)).toMatchObject({
      looked_at: { pods: 3, calls: 3 },
      violation_count: 0,
      pending_count: 1,
    });
  });

  it('reads many pods in many pieces, each once', async () => {
    const store = await open(engine.url, 'voice:');
    const names = Array.from({ length: 700 }, (_, i) => `pod-${i}`);
    await store.register(names, 'pool:gold');
    for (let i = 0; i < 400; i++) await store.allocate(`call-${i}`, ['pool:gold']);
    expect(await audit(store)).toMatchObject({
      complete: true,
      looked_at: { pods: 703, calls: 403 },
      violation_count: 0,
      pending_count: 0,
    });
  });

  it('finds nothing in an empty store', async () => {
    const store = await openStore(engine.url);
    cleanups.push(() => store.close());
    await engine.redis.flushall();
    expect(await audit(store)).toMatchObject({
      complete: true,
      looked_at: { keys: 0 },
      violation_count: 0,
      pending_count: 0,
    });
  });
});
