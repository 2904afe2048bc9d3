/** A router that stood still finds requests in front of it whose senders have long gone on. */
import { afterEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { type RouterProcess, startRouter } from '../support/processes.js';
import { postBytes, rawConnection } from '../support/raw-http.js';
import { until } from '../support/until.js';

describeOneEngine('an undrain that was given up', (engine) => {
  const routers: RouterProcess[] = [];
  afterEach(() => Promise.all(routers.splice(0).map((router) => router.signal('SIGKILL'))));

  it('while its router stood still does not end the drain that was sent since', async () => {
    const env = { REDIS_URL: engine.url, STATIC_PODS: 'gold-1=gold' };
    for (const name of ['r-0', 'r-1']) routers.push(await startRouter({ ...env, POD_NAME: name }));
    const [still, other] = routers as [RouterProcess, RouterProcess];
    await other.post('/api/v1/drain', { pod_name: 'gold-1' });
    const { socket, closed } = await rawConnection(Number(new URL(still.url).port));
    await still.signal('SIGSTOP');
    await new Promise((resolve) => socket.write(postBytes('/undrain', { pod_name: 'gold-1' }), resolve));
    socket.destroy();
    await closed;
    expect((await other.post('/api/v1/undrain', { pod_name: 'gold-1' })).status).toBe(200);
    expect((await other.post('/api/v1/drain', { pod_name: 'gold-1' })).status).toBe(200);
    await still.signal('SIGCONT');
    await until(() => still.output.includes('/api/v1/undrain'), 'it has come to the request');
    expect(await engine.redis.exists('voice:pod:draining:gold-1')).toBe(1);
  });
});
