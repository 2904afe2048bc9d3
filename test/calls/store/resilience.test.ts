/** When the store is not well: an error in time, the right one, and nothing done behind the caller's back. */
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { StoreConnection } from '../../../src/calls/store/connection.js';
import { checkRights, usedCommands } from '../../../src/calls/store/rights.js';
import { scripts } from '../../../src/calls/store/scripts.generated.js';
import { CallStore } from '../../../src/calls/store/store.js';
import { systemClock } from '../../../src/clock.js';
import { AppError, ConfigError } from '../../../src/errors.js';
import { describeEngines, nativeAvailable, nativeRedis, redisReplica } from '../../support/engines.js';
import { startTestRouter } from '../../support/router.js';
import { openStore, type TestStore, testTimes } from '../../support/store.js';
import { until } from '../../support/until.js';
import { connectWithTimeout } from '../short-timeout.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function open(url: string, options: Parameters<typeof openStore>[1] = {}): Promise<TestStore> {
  const store = await openStore(url, options);
  cleanups.push(() => store.close());
  return store;
}

/** For servers that cannot be written to: no configuration, no epoch. */
function connect(url: string, commandTimeoutMs = 5000): CallStore {
  const connection = new StoreConnection({ url, keyPrefix: 'voice:', commandTimeoutMs, clock: systemClock });
  cleanups.push(() => connection.close());
  return new CallStore(connection, testTimes);
}

/** The code of a refusal, or `ok`; anything but an AppError fails the test. */
async function outcome(answer: Promise<unknown>): Promise<string> {
  try {
    await answer;
    return 'ok';
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return error.code;
  }
}

function allocate(calls: CallStore, callSid: string, pool: 'pool:gold' | 'pool:basic', patienceMs = 5000) {
  const request = { callSid, merchantId: '', provider: 'twilio', flow: 'v2', template: 't' };
  return calls.allocate({ ...request, chain: [pool], patienceMs });
}

/** The refusal that gives this reason: on a busy machine the first may come before the reason is known. */
function refusalFor(calls: CallStore, reason: string): Promise<AppError> {
  return until(async () => {
    const refusal = await calls.snapshot().catch((refused: AppError) => refused);
    return refusal instanceof AppError && refusal.message.includes(reason) && refusal;
  }, `the error contains ${reason}`);
}

/** What the scripts name in capitals and quotes besides commands. */
const options = ['COUNT', 'LIMIT', 'MATCH', 'MAXLEN', 'PX', 'WITHSCORES', 'WRONGTYPE', 'XX'];

describeEngines('the rights of the Redis user', (engine) => {
  /** A connection of a user with these rules. */
  const connectAs = async (...rules: string[]) => {
    await engine.redis.call('ACL', 'SETUSER', 'limited', 'reset', 'on', '>secret', ...rules);
    cleanups.push(() => engine.redis.call('ACL', 'DELUSER', 'limited'));
    const url = engine.url.replace('redis://', 'redis://limited:secret@');
    return { url, ...connect(url) };
  };

  it('suffice with the commands that are checked', async () => {
    const words = Object.values(scripts).flatMap((text) =>
      [...text.matchAll(/'([A-Z]{2,})'/g)].map(([, word]) => word),
    );
    const names = usedCommands;
    expect([...new Set(words)].filter((word) => ![...names, ...options].includes(word ?? ''))).toEqual([]);
    const { connection, url } = await connectAs(
      '~voice:*',
      ...[...names, 'EVAL', 'EVALSHA'].map((name) => `+${name.toLowerCase()}`),
    );
    await checkRights(connection);
    expect(await engine.redis.keys('*')).toEqual([]);
    const store = await open(url);
    await store.register(['a', 'b'], 'pool:gold');
    await store.register(['c'], 'pool:basic');
    await store.allocate('1', ['pool:gold', 'pool:basic']);
    await store.calls.report('c', ['2']);
    await store.calls.drain('a', 1000);
    await store.sweep();
    await store.calls.release('1');
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 1 });
  });

  it.each([
    [['~voice:*', '+@all', '-zcard', '-hscan'], 'HSCAN, ZCARD'],
    [['~voice:*', '+@all', '-eval'], 'EVAL'],
    [['~other:*', '+@all'], 'EVAL'],
  ])('are refused at the start with the missing commands: %j', async (rules, missing) => {
    const { url } = await connectAs(...rules);
    const start = startTestRouter(url);
    await expect(start).rejects.toThrow(ConfigError);
    await expect(start).rejects.toThrow(`may not run ${missing} on keys that begin with voice:`);
  });
});

describeEngines('resilience', (engine) => {
  it('SCRIPT FLUSH between operations costs no answer', async () => {
    const store = await open(engine.url);
    const flush = () => engine.redis.script('FLUSH');
    await flush();
    await store.register(['g'], 'pool:gold');
    await flush();
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'g' });
    await flush();
    await store.calls.renew('1');
    await flush();
    await store.sweep();
    await flush();
    expect(await store.calls.release('1')).toMatchObject({ podName: 'g' });
    await flush();
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 0 });
  });

  it('a router with an old estimate of the store’s clock is refused as late only once', async () => {
    await (await open(engine.url)).register(['g'], 'pool:gold');
    // Without virtual time: the store's own clock decides what it must refuse.
    const calls = connect(engine.url);
    const forget = () => calls.connection.learnTime(Date.now() - 3_600_000);
    await calls.drain('g', 0);
    forget();
    expect(await calls.undrain('g', 20_000)).toEqual({ activeCalls: 0, blockedBy: '' });
    forget();
    expect(await allocate(calls, '1', 'pool:gold')).toMatchObject({ allocation: { podName: 'g' } });
  });

  it('after a restart the store answers again; until then every answer is store_unavailable', async () => {
    const store = await open(engine.url);
    await store.register(['g'], 'pool:gold');
    const calls = new CallStore(await connectWithTimeout(engine.url, 400), testTimes);
    const seen: string[] = [];
    const restarted = engine.restart().then(() => 'restarted');
    let state = 'down';
    restarted.then((value) => {
      state = value;
    });
    while (state === 'down') seen.push(await outcome(calls.drain('unknown')));
    for (const any of [calls, store.calls])
      await expect.poll(() => outcome(any.snapshot()), { timeout: 40_000 }).toBe('ok');
    // Before the kill and after the start the pod is unknown; between them the store does not answer.
    expect(seen.filter((code) => code !== 'store_unavailable' && code !== 'pod_not_found')).toEqual([]);
    expect(await store.allocate('1', ['pool:gold'])).toBeUndefined();
  });

  it('a paused store is an error within the command timeout, and takes no pod when it resumes', async () => {
    const store = await open(engine.url);
    await store.register(['g'], 'pool:gold');
    const calls = new CallStore(await connectWithTimeout(engine.url, 1500), testTimes);
    await until(() => calls.snapshot(), 'the time of the store is known');
    await engine.pause();
    // Far below the timeout, until which the store stays paused: the estimate of the store's clock can be off by a round trip.
    expect(await outcome(allocate(calls, '1', 'pool:gold', 200))).toBe('store_unavailable');
    await engine.resume();
    await expect.poll(() => outcome(calls.snapshot()), { timeout: 40_000 }).toBe('ok');
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 0 });
    expect(await store.allocate('2', ['pool:gold'])).toMatchObject({ podName: 'g' });
  });

  it('an allocate that the store runs after its caller gave up takes no pod', async () => {
    const store = await open(engine.url);
    await store.register(['g'], 'pool:gold');
    await store.calls.snapshot();
    await engine.pause();
    const answer = outcome(store.allocate('1', ['pool:gold'], { patienceMs: 200 }));
    await systemClock.sleep(600); // Three times the caller's patience: the test is about real time.
    await engine.resume();
    expect(await answer).toBe('store_unavailable');
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 0 });
  });

  it.each(['127.0.0.1', 'localhost'])(
    'an address without a listener (%s) is an error in time, with a reason',
    async (host) => {
      const calls = connect(`redis://${host}:1`, 2000);
      expect(await refusalFor(calls, 'ECONNREFUSED')).toMatchObject({
        code: 'store_unavailable',
        status: 503,
        message: expect.stringMatching(/^cannot reach the store: connect ECONNREFUSED \S+:1$/),
        details: { retryAfterSeconds: 1 },
      });
    },
  );

  it('a closed connection is an error in time', async () => {
    const calls = new CallStore(await connectWithTimeout(engine.url, 400), testTimes);
    calls.connection.close();
    await expect(calls.snapshot()).rejects.toMatchObject({ code: 'store_unavailable' });
  });

  it.each([
    ['voice:pools', (store: TestStore) => store.allocate('2', ['pool:gold'])],
    ['voice:call:2', (store: TestStore) => store.allocate('2', ['pool:gold'])],
    ['voice:call:2', (store: TestStore) => store.calls.release('2')],
    ['voice:call:2', (store: TestStore) => store.calls.renew('2')],
    ['voice:pod:calls:g', (store: TestStore) => store.calls.drain('g')],
    ['voice:pod:calls:g', (store: TestStore) => store.calls.report('g', ['1'])],
    ['voice:pools', (store: TestStore) => store.calls.snapshot()],
    ['voice:pool:gold:assigned', (store: TestStore) => store.calls.pods('pool:gold', '0', 10)],
  ] as [string, (store: TestStore) => Promise<unknown>][])(
    'data of another type in %s is internal, not unavailable and not missing (%#)',
    async (key, act) => {
      const store = await open(engine.url);
      await store.register(['g'], 'pool:gold');
      await engine.redis.del(key);
      await engine.redis.set(key, 'not what it should be');
      await expect(act(store)).rejects.toMatchObject({
        code: 'internal',
        status: 500,
        message: expect.stringContaining('WRONGTYPE'),
      });
    },
  );
});

describe('resilience of native servers', () => {
  const native = nativeAvailable();

  it('a restart that keeps the data never makes a live call "not found"', async (test) => {
    if (native !== true) return test.skip(native);
    const engine = await nativeRedis();
    cleanups.push(() => engine.stop());
    const store = await open(engine.url);
    await store.register(['g'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await store.connection.command('save', (client) => client.call('SAVE'));
    const calls = new CallStore(await connectWithTimeout(engine.url, 400), testTimes);
    const seen = new Set<string>();
    let restarting = true;
    const restarted = engine.restart().then(() => {
      restarting = false;
    });
    while (restarting) seen.add(await outcome(calls.renew('1')));
    await restarted;
    for (const any of [calls, store.calls])
      await expect.poll(() => outcome(any.renew('1')), { timeout: 40_000 }).toBe('ok');
    expect([...seen].filter((code) => code !== 'ok' && code !== 'store_unavailable')).toEqual([]);
    expect(seen).toContain('store_unavailable');
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'g', wasExisting: true });
  });

  it.for([
    ['a wrong password', ':wr0ng-s3cret@', 'WRONGPASS'],
    ['a wrong user', 'intruder:wr0ng-s3cret@', 'WRONGPASS'],
    ['no password', '', 'NOAUTH'],
  ] as const)('%s is store_unavailable, and the error contains no secret', async ([, auth, reason], test) => {
    if (native !== true) return test.skip(native);
    const secret = 's3same-0pen';
    const engine = await nativeRedis({ args: (port) => ['--port', `${port}`, '--requirepass', secret] });
    cleanups.push(() => engine.stop());
    const calls = connect(`redis://${auth}127.0.0.1:${engine.port}`, 400);
    const error = await refusalFor(calls, reason);
    expect(error).toMatchObject({ code: 'store_unavailable' });
    expect(error.message).toMatch(/^store authentication failed .* in REDIS_URL/);
    const shown = [error.message, error.stack, JSON.stringify(error), String(error.cause)].join('\n');
    expect(shown).not.toMatch(/wr0ng-s3cret|s3same-0pen/);
    const right = connect(`redis://:${secret}@127.0.0.1:${engine.port}`);
    expect(await right.snapshot()).toMatchObject({ activeCalls: 0 });
  });

  it('a read-only replica refuses writes as store_unavailable and still answers questions', async (test) => {
    if (native !== true) return test.skip(native);
    const master = await nativeRedis();
    cleanups.push(() => master.stop());
    const store = await open(master.url);
    await store.register(['g'], 'pool:gold');
    const replica = await redisReplica(master);
    cleanups.push(() => replica.stop());
    const calls = connect(replica.url);
    const assigned = async () =>
      (await calls.snapshot()).pools.find(({ pool }) => pool === 'pool:gold')?.assigned;
    await expect.poll(() => assigned().catch(() => 'loading'), { timeout: 40_000 }).toBe(1);
    expect(await outcome(allocate(calls, '1', 'pool:gold'))).toBe('store_unavailable');
    expect(await outcome(allocate(calls, '1', 'pool:basic'))).toBe('store_unavailable');
    await expect.poll(() => outcome(calls.snapshot()), { timeout: 40_000 }).toBe('ok');
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 0 });
  });
});

describeEngines('a command right after the router has dropped its connection', (engine) => {
  it('waits for the next one', async () => {
    const { calls } = await open(engine.url);
    calls.connection.reconnect();
    expect(await outcome(calls.renew('CA1'))).toBe('call_not_found');
  });
});

describeEngines('the commands of one turn of the event loop', (engine) => {
  it('are written together at its end, and each has its own answer', async () => {
    const { calls } = await open(engine.url);
    let socket: Socket | undefined;
    await calls.connection.command('test', async (client) => {
      socket = (client as unknown as { stream: Socket }).stream;
    });
    await until(() => socket?.writableCorked === 0, 'the commands to be written');
    const answers = Array.from({ length: 64 }, (_, i) => outcome(calls.renew(`CA${i}`)));
    expect(socket?.writableCorked).toBe(1);
    expect(await Promise.all(answers)).toEqual(Array(64).fill('call_not_found'));
    await until(() => socket?.writableCorked === 0, 'the commands to be written');
  });
});
