/**
 * A router that stood still finds requests in front of it whose senders have long gone on. What an operator gave up is not
 * applied over later requests through another router.
 */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { type RouterProcess, startRouter } from '../support/processes.js';
import { postBytes, rawConnection } from '../support/raw-http.js';
import { until } from '../support/until.js';

interface Late {
  method: string;
  path: string;
  body: object;
  before?: [method: 'post' | 'put', path: string, body: object][];
  /** Sent through the other router after the late request was given up. */
  since: [method: 'post' | 'put', path: string, body: object][];
}

describeOneEngine('a request given up while its router was frozen', (engine) => {
  let still: RouterProcess;
  let other: RouterProcess;
  beforeEach(async () => {
    const start = (name: string) =>
      startRouter({
        ...{ REDIS_URL: engine.url, STATIC_PODS: 'gold-1=gold', POD_NAME: name },
        // A busy machine is not a store that does not answer.
        ...{ REQUEST_TIMEOUT: '20s', REDIS_COMMAND_TIMEOUT: '15s' },
      });
    still = await start('r-0');
    other = await start('r-1');
  });
  afterEach(() => Promise.all([still, other].map((router) => router.signal('SIGKILL'))));

  /** The request reaches a frozen router, and its client gives up; `since` runs; then the router resumes. */
  async function giveUp({ method, path, body, before = [], since }: Late): Promise<void> {
    for (const [how, where, what] of before)
      expect((await other[how](`/api/v1${where}`, what)).status).toBe(200);
    const { socket, closed } = await rawConnection(Number(new URL(still.url).port));
    await still.signal('SIGSTOP');
    const bytes = postBytes(path, body)
      .replace('POST', method)
      .replace('host:', 'x-request-id: late\r\nhost:');
    await new Promise((resolve) => socket.write(bytes, resolve));
    socket.destroy();
    await closed;
    for (const [how, where, what] of since)
      expect((await other[how](`/api/v1${where}`, what)).status).toBe(200);
    await still.signal('SIGCONT');
    const isLate = ({ reqId }: Record<string, unknown>) => reqId === 'late';
    await until(() => still.logged('request').some(isLate), 'it has come to the request');
    // Sent later on the same store connection than the late request.
    expect((await still.put('/api/v1/merchants/afterwards', {})).status).toBe(200);
  }

  const target = async () => JSON.parse((await other.get('/api/v1/tiers')).text).tiers.gold.target;
  const tier = async () => JSON.parse((await other.get('/api/v1/merchants/acme')).text).tier;
  const isDraining = () => engine.redis.exists('voice:pod:draining:gold-1');
  const gold = { pod_name: 'gold-1' };

  it.each<[what: string, late: Late, holds: () => Promise<unknown>, value: unknown]>([
    [
      'an undrain does not end the drain that was sent since',
      {
        ...{ method: 'POST', path: '/undrain', body: gold },
        before: [['post', '/drain', gold]],
        since: [
          ['post', '/undrain', gold],
          ['post', '/drain', gold],
        ],
      },
      isDraining,
      1,
    ],
    [
      'a change of the tiers does not replace the one that was sent since',
      { method: 'PUT', path: '/tiers', body: { gold: 3 }, since: [['put', '/tiers', { gold: 5 }]] },
      target,
      5,
    ],
    [
      'a change of a merchant does not replace the one that was sent since',
      {
        ...{ method: 'PUT', path: '/merchants/acme', body: {} },
        since: [['put', '/merchants/acme', { tier: 'gold' }]],
      },
      tier,
      'gold',
    ],
    [
      'the removal of a merchant does not remove a later entry',
      {
        ...{ method: 'DELETE', path: '/merchants/acme', body: {} },
        since: [['put', '/merchants/acme', { tier: 'gold' }]],
      },
      tier,
      'gold',
    ],
    [
      'a late drain is applied: its pod may have ended without waiting for the reply',
      { method: 'POST', path: '/drain', body: gold, since: [] },
      isDraining,
      1,
    ],
  ])('%s', async (_, late, holds, value) => {
    await giveUp(late);
    expect(await holds()).toEqual(value);
  });
});
