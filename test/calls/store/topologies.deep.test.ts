/** The life of a call over TLS, Sentinel and Cluster: the same operations, the same answers. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, it } from 'vitest';
import { StoreConnection } from '../../../src/calls/store/connection.js';
import { CallStore } from '../../../src/calls/store/store.js';
import { systemClock } from '../../../src/clock.js';
import {
  nativeAvailable,
  nativeRedisTls,
  redisCluster,
  redisSentinel,
  tlsAvailable,
} from '../../support/engines.js';
import { holdRules, openStore, type TestStore, testTimes } from '../../support/store.js';
import { until } from '../../support/until.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function open(url: string, prefix = 'voice:'): Promise<TestStore> {
  const store = await openStore(url, { prefix });
  cleanups.push(() => store.close());
  return store;
}

/** A call waits, gets the pod of another one and picks it up; the next one still waits at the end. */
async function lifeOfWaitingCalls(store: TestStore): Promise<void> {
  const { calls, waits, connection } = store;
  const ask = (sid: string) =>
    store.ask(sid, ['merchant:acme'], { merchantId: 'acme', hold: holdRules({ queue: 'acme' }) });
  expect(await connection.run('setMerchant', ['acme', '{}', 'test', 2])).toEqual(['ok']);
  expect(await ask('w1')).toMatchObject({ allocation: { podName: 'l' } });
  expect(await ask('w2')).toMatchObject({ waiting: { position: 1 } });
  expect(await ask('w3')).toMatchObject({ waiting: { position: 2 } });
  expect(await waits.refresh(['w2', 'w3', 'unknown'])).toEqual(['unknown']);
  expect((await waits.calls('0', 10)).items).toHaveLength(2);
  expect(await calls.release('w1')).toMatchObject({ podName: 'l' });
  expect(await ask('w2')).toMatchObject({ allocation: { podName: 'l', waitedMs: expect.any(Number) } });
  expect(await waits.serve()).toMatchObject({ waiting: 1, expired: 0, abandoned: 0 });
}

/** Every script at least once. */
async function lifeOfCalls(store: TestStore): Promise<void> {
  const { calls, pools, epoch, connection } = store;
  await store.register(['g'], 'pool:gold');
  await store.register(['s'], 'pool:basic');
  await store.register(['l'], 'merchant:acme');
  await lifeOfWaitingCalls(store);
  const first = await store.allocate('1', ['pool:gold']);
  expect(first).toMatchObject({ podName: 'g', wasExisting: false });
  expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'g', wasExisting: true });
  expect(await store.allocate('2', ['pool:gold', 'pool:basic'])).toMatchObject({ podName: 's' });
  expect(await store.allocate('3', ['pool:gold'])).toBeUndefined();
  expect(await calls.renew('1', first?.fence)).toMatchObject({ podName: 'g' });
  expect(await calls.report('s', ['2', 'forgotten'])).toMatchObject({
    renewed: ['2'],
    adopted: ['forgotten'],
  });
  expect(await calls.drain('s')).toMatchObject({ activeCalls: 2 });
  expect(await store.allocate('4', ['pool:basic'])).toBeUndefined();
  expect(await calls.undrain('s')).toEqual({ activeCalls: 2, blockedBy: '' });
  expect(await calls.snapshot()).toMatchObject({ activeCalls: 4, waitingCalls: 1 });
  expect(await calls.pod('s')).toMatchObject({ pool: 'pool:basic', calls: { length: 2 } });
  expect(await calls.call('2')).toMatchObject({ podName: 's' });
  expect((await calls.pods('pool:basic', '0', 10)).items).toHaveLength(1);
  expect((await calls.calls('pool:basic', '0', 10)).items).toHaveLength(2);
  expect(await calls.release('1', first?.fence)).toMatchObject({ releasedToPool: 'pool:gold' });
  expect(await store.sweep()).toEqual({ callsEnded: 0, podsPutBack: 0, podsTakenOut: 0 });
  expect(await connection.run('importCalls', [1000, 1000, 1000, '["pool:basic"]', 1, 'g', '2'])).toBe(0);
  expect(await connection.run('importIndex', ['pool:gold', '0', 10])).toBe('0');
  expect(await connection.run('setMerchant', ['acme', '{}', 'test'])).toEqual(['ok']);
  const kinds = ['pool:gold', 'shared:2', 'pool:basic', 'shared:3'];
  expect(await connection.run('setTiers', ['{}', 'replace', '', 'test', ...kinds])).toEqual(['ok', 2, 2]);
  expect(await pools.suspend(epoch, 'not_ready', ['g'])).toEqual([0]);
  expect(await pools.remove(epoch, ['s'], 'gone')).toMatchObject([{ lostCalls: { length: 2 } }]);
}

/** Node reads NODE_EXTRA_CA_CERTS when it starts: this file runs itself in a process that has it. */
function rerun(title: string, env: Record<string, string>): Promise<{ code: number | null; output: string }> {
  const root = fileURLToPath(new URL('../../..', import.meta.url));
  const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const args = [vitest, 'run', 'test/calls/store/topologies.deep.test.ts', '-t', title];
  const child = spawn(process.execPath, args, { cwd: root, env: { ...process.env, ...env } });
  return new Promise((resolve) => {
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        output += chunk.toString();
      });
    }
    child.once('close', (code) => resolve({ code, output }));
  });
}

const native = nativeAvailable();
const tls = tlsAvailable();
const tlsUrl = process.env.SMART_ROUTER_TEST_TLS_URL;

describe('topologies', () => {
  it('TLS: a call lives and ends over rediss:// with NODE_EXTRA_CA_CERTS', async (test) => {
    if (tls !== true) return test.skip(tls);
    if (tlsUrl !== undefined) return lifeOfCalls(await open(tlsUrl));
    const engine = await nativeRedisTls();
    cleanups.push(engine.stop);
    const folder = mkdtempSync(join(tmpdir(), 'smart-router-ca-'));
    cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
    const ca = join(folder, 'ca.pem');
    writeFileSync(ca, engine.ca);
    const env = { NODE_EXTRA_CA_CERTS: ca, SMART_ROUTER_TEST_TLS_URL: engine.url };
    const { code, output } = await rerun('TLS: a call lives and ends', env);
    expect(output).toContain('1 passed, 0 failed');
    expect(code).toBe(0);
  }, 60_000);

  it('TLS: a server with an untrusted certificate is store_unavailable', async (test) => {
    if (tls !== true) return test.skip(tls);
    const engine = await nativeRedisTls();
    cleanups.push(engine.stop);
    const options = { url: engine.url, keyPrefix: 'voice:', commandTimeoutMs: 1000, clock: systemClock };
    const connection = new StoreConnection(options);
    cleanups.push(() => connection.close());
    const store = new CallStore(connection, testTimes);
    const unavailable = { code: 'store_unavailable' };
    await expect(store.snapshot()).rejects.toMatchObject(unavailable);
    // The handshake may take longer than the first request waits.
    await until(async () => {
      const message = expect.stringContaining('certificate');
      await expect(store.snapshot()).rejects.toMatchObject({ ...unavailable, message });
      return true;
    }, 'the reason is known');
  });

  it('Sentinel: a call lives and ends', async (test) => {
    if (native !== true) return test.skip(native);
    const group = await redisSentinel();
    cleanups.push(group.stop);
    await lifeOfCalls(await open(group.url));
  });

  it('Sentinel: after the master has died calls keep their pods and places, and new ones get theirs', async (test) => {
    if (native !== true) return test.skip(native);
    const group = await redisSentinel();
    cleanups.push(group.stop);
    const store = await open(group.url);
    await store.register(['a', 'b'], 'pool:gold');
    const before = await store.allocate('1', ['pool:gold']);
    await store.register(['l'], 'merchant:acme');
    const wait = (sid: string) => store.ask(sid, ['merchant:acme'], { hold: holdRules() });
    await store.allocate('busy', ['merchant:acme']);
    await wait('w1');
    expect(await wait('w2')).toMatchObject({ waiting: { position: 2 } });
    const replicated = await store.connection.command('wait', (client) => client.call('WAIT', '1', '5000'));
    expect(replicated).toBe(1);
    const sentinel = new Redis(group.sentinel.port, '127.0.0.1');
    cleanups.push(() => sentinel.disconnect());
    await sentinel.subscribe('+switch-master');
    const switched = new Promise<void>((resolve) => sentinel.once('message', () => resolve()));
    await group.master.stop();
    const codes = new Set<string>();
    const again = () =>
      store.allocate('1', ['pool:gold']).catch((error: { code: string }) => {
        codes.add(error.code);
        return undefined;
      });
    const isKept = () =>
      expect.poll(again, { timeout: 40_000, interval: 100 }).toMatchObject({
        podName: before?.podName,
        fence: before?.fence,
        wasExisting: true,
      });
    await isKept();
    // A client that found the new master early connects again when the Sentinel announces it.
    await switched;
    await sentinel.ping();
    await isKept();
    expect([...codes].filter((code) => code !== 'store_unavailable')).toEqual([]);
    const after = await store.allocate('2', ['pool:gold']);
    expect(after?.podName).not.toBe(before?.podName);
    expect(after?.fence).toBeGreaterThan(before?.fence ?? 0);
    expect(await store.allocate('3', ['pool:gold'])).toBeUndefined();
    expect(await wait('w2')).toMatchObject({ waiting: { position: 2 } });
    await store.calls.release('busy');
    expect(await wait('w1')).toMatchObject({ allocation: { podName: 'l' } });
    expect(await wait('w2')).toMatchObject({ waiting: { position: 1 } });
  }, 60_000);

  it('Cluster: calls live, wait and end with the prefix {voice}:, and every key is in one slot', async (test) => {
    if (native !== true) return test.skip(native);
    const cluster = await redisCluster(3);
    cleanups.push(cluster.stop);
    await lifeOfCalls(await open(cluster.url, '{voice}:'));
    const sizes: number[] = [];
    for (const node of cluster.nodes) {
      const client = new Redis(node.url);
      sizes.push(await client.dbsize());
      client.disconnect();
    }
    expect(sizes.filter((size) => size > 0)).toHaveLength(1);
  }, 60_000);

  it('Cluster: while the slot migrates, scripts are refused and change nothing; afterwards calls continue', async (test) => {
    if (native !== true) return test.skip(native);
    const cluster = await redisCluster(3);
    cleanups.push(cluster.stop);
    const store = await open(cluster.url, '{voice}:');
    await store.register(['g1', 'g2'], 'pool:gold');
    const live = await store.allocate('1', ['pool:gold']);
    const clients = cluster.nodes.map((node) => new Redis(node.port, '127.0.0.1'));
    cleanups.push(() => clients.forEach((client) => void client.disconnect()));
    const slot = Number(await clients[0]?.cluster('KEYSLOT', '{voice}:'));
    const keysOf = (client: Redis) =>
      client.call('CLUSTER', 'GETKEYSINSLOT', slot, 10_000) as Promise<string[]>;
    const counts = await Promise.all(clients.map(async (client) => (await keysOf(client)).length));
    const source = clients[counts.findIndex((count) => count > 0)] as Redis;
    const target = clients[counts.indexOf(0)] as Redis;
    const [sourceId, targetId] = [await source.cluster('MYID'), await target.cluster('MYID')] as string[];
    await target.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', sourceId as string);
    await source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', targetId as string);
    const unavailable = { code: 'store_unavailable' };
    await expect(store.allocate('2', ['pool:gold'])).rejects.toMatchObject(unavailable);
    await expect(store.calls.renew('1', live?.fence)).rejects.toMatchObject(unavailable);
    const keys = await keysOf(source);
    const { port } = target.options;
    for (const [index, key] of keys.entries()) {
      await source.call('MIGRATE', '127.0.0.1', port as number, key, 0, 5000);
      // Half of the keys are there, the others not yet.
      if (index === Math.floor(keys.length / 2))
        await expect(store.calls.renew('1', live?.fence)).rejects.toMatchObject(unavailable);
    }
    await expect(store.calls.release('1', live?.fence)).rejects.toMatchObject(unavailable);
    expect((await keysOf(target)).sort()).toEqual(keys.sort());
    for (const client of clients) await client.call('CLUSTER', 'SETSLOT', slot, 'NODE', targetId as string);
    expect(await store.calls.renew('1', live?.fence)).toMatchObject({ podName: live?.podName });
    expect(await store.allocate('2', ['pool:gold'])).toMatchObject({ wasExisting: false });
  });

  it('Cluster: without the node of our slot every request is store_unavailable, not "not found"', async (test) => {
    if (native !== true) return test.skip(native);
    const cluster = await redisCluster(3);
    cleanups.push(cluster.stop);
    const store = await open(cluster.url, '{voice}:');
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    for (const node of cluster.nodes) {
      const client = new Redis(node.url);
      const owns = (await client.dbsize()) > 0;
      client.disconnect();
      if (owns) await node.stop();
    }
    for (let i = 0; i < 3; i++) {
      await expect(store.calls.renew('1')).rejects.toMatchObject({ code: 'store_unavailable' });
    }
  }, 60_000);
});
