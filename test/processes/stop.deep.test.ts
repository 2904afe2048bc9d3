/** SIGTERM: complete requests are answered; idle connections and partial requests do not delay the stop. */
import { afterEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { startRouter } from '../support/processes.js';
import { postBytes, rawConnection } from '../support/raw-http.js';

describeOneEngine('a router that stops', (engine) => {
  afterEach(() => engine.resume());

  /** It may take an hour: a stop that waits for it would never end. */
  async function startPatient(env: Record<string, string> = {}) {
    const pods = { REDIS_URL: engine.url, STATIC_PODS: 'gold-1=gold' };
    const router = await startRouter({ ...pods, SHUTDOWN_TIMEOUT: '1h', ...env });
    const port = Number(new URL(router.url).port);
    const half = await rawConnection(port);
    half.socket.write(postBytes('/allocate', { call_sid: 'half' }).slice(0, -5));
    const silent = await rawConnection(port);
    return { router, half, silent };
  }

  it('does not wait for half a request, nor for a connection without one', async () => {
    const { router, half, silent } = await startPatient();
    // A round trip on another connection: it has read the half by then.
    await router.get('/health');
    expect(await router.stop()).toBe(0);
    await Promise.all([half.closed, silent.closed]);
    expect(half.text() + silent.text()).toBe('');
    expect(router.output).not.toContain('shutdown timeout');
    expect(await engine.redis.exists('voice:call:half')).toBe(0);
  });

  it('answers complete requests, even if that takes longer than the grace for others', async () => {
    const { router, half } = await startPatient({ REQUEST_TIMEOUT: '5s', REDIS_COMMAND_TIMEOUT: '5s' });
    await engine.pause();
    const answer = router.post('/api/v1/allocate', { call_sid: 'whole' });
    await router.get('/health');
    const stopped = router.stop();
    expect((await answer).status).toBe(503);
    await engine.resume();
    expect(await stopped).toBe(0);
    await half.closed;
    expect(router.output).not.toContain('shutdown timeout');
  });
});
