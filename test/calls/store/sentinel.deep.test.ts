/** A Sentinel announces a failover while the client asks it for the master. */
import { Redis } from 'ioredis';
import { expect, it, onTestFinished } from 'vitest';
import { StoreConnection } from '../../../src/calls/store/connection.js';
import { systemClock } from '../../../src/clock.js';
import { nativeAvailable, redisSentinel } from '../../support/engines.js';
import { tcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';

const native = nativeAvailable();

/** Longer than the client waits before it connects again, shorter than it takes to ask over this way. */
const slowMs = 400;

it('the connection recovers from a failover message during the lookup of the master', {
  timeout: 60_000,
}, async (test) => {
  if (native !== true) return test.skip(native);
  const group = await redisSentinel();
  onTestFinished(() => group.stop());
  const proxy = await tcpProxy(group.sentinel.port);
  const states: string[] = [];
  const connection = new StoreConnection({
    url: `redis+sentinel://127.0.0.1:${proxy.port}/${group.name}`,
    ...{ keyPrefix: 'voice:', commandTimeoutMs: 1000, clock: systemClock },
    onState: (state) => states.push(state),
  });
  onTestFinished(() => connection.close());
  const ping = () => connection.command('ping', (client) => client.ping());
  await until(async () => (await ping()) === 'PONG', 'it is connected');

  const master = new Redis(group.master.port, '127.0.0.1');
  const sentinel = new Redis(group.sentinel.port, '127.0.0.1');
  const told = new Redis(group.sentinel.port, '127.0.0.1');
  for (const client of [master, sentinel, told]) {
    client.on('error', () => {});
    onTestFinished(() => client.disconnect());
  }
  // The one who watches for failovers connects after the first answer.
  await until(
    async () => String(await sentinel.call('CLIENT', 'LIST')).includes(' sub=1 '),
    'the client listens for failovers',
  );
  await told.subscribe('+switch-master');
  const switched = new Promise<void>((resolve) => told.once('message', () => resolve()));
  proxy.delay(slowMs);
  await sentinel.call('SENTINEL', 'FAILOVER', group.name);
  await switched;
  // Its connection breaks now; the news of the failover reaches it while it asks for the master.
  await master.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await until(() => states.includes('down'), 'it has lost its connection');
  expect(await until(async () => (await ping()) === 'PONG', 'it is back')).toBe(true);
});

it('the connection leaves a master that was replaced and still accepts writes', {
  timeout: 60_000,
}, async (test) => {
  if (native !== true) return test.skip(native);
  const group = await redisSentinel();
  onTestFinished(() => group.stop());
  const connection = new StoreConnection({
    ...{ url: group.url, keyPrefix: 'voice:', commandTimeoutMs: 5000, clock: systemClock },
  });
  onTestFinished(() => connection.close());
  const [master, replica, sentinel] = [group.master, group.replica, group.sentinel].map(({ port }) => {
    const client = new Redis(port, '127.0.0.1');
    client.on('error', () => {});
    onTestFinished(() => client.disconnect());
    return client;
  }) as [Redis, Redis, Redis];
  const write = (value: string) => connection.command('set', (client) => client.set('voice:written', value));
  await until(() => write('before').then(Boolean, () => false), 'a write succeeds');
  await until(
    async () => String(await sentinel.call('CLIENT', 'LIST')).includes(' sub=1 '),
    'the client listens for failovers',
  );
  const told = new Redis(group.sentinel.port, '127.0.0.1');
  onTestFinished(() => told.disconnect());
  await told.subscribe('+switch-master');
  const switched = new Promise<void>((resolve) => told.once('message', () => resolve()));
  await sentinel.call('SENTINEL', 'FAILOVER', group.name);
  await switched;
  // A Sentinel demotes a master that it can reach about 8 s after a forced failover: until then it accepts writes.
  await until(async () => {
    await write('after').catch(() => {});
    return (await replica.get('voice:written')) === 'after';
  }, 'a write reaches the new master');
  await write('last');
  expect((await master.role())[0]).toBe('master');
  expect(await master.get('voice:written')).not.toBe('last');
  expect(await replica.get('voice:written')).toBe('last');
});
