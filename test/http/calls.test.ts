/** Allocate, release, renew, report, and what operators see of calls: exact bodies over real HTTP. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const iso = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
const base = { VOICE_AGENT_BASE_URL: 'wss://voice.example.com' };

describeOneEngine('calls over HTTP', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, base);
  });
  afterEach(() => router.stop());

  it('allocate answers with the pod and nothing else', async () => {
    const { status, body, headers } = await router.post('/allocate', { call_sid: 'CA1' });
    expect(status).toBe(200);
    expect(headers['content-type']).toBe('application/json; charset=utf-8');
    expect(body).toEqual({
      success: true,
      pod_name: expect.stringMatching(/^gold-[12]$/),
      ws_url: `wss://voice.example.com/ws/pod/${body.pod_name}/agent/voice/breeze-buddy/twilio/callback/order-confirmation/v2`,
      source_pool: 'pool:gold',
      allocated_at: iso,
      lease_expires_at: iso,
      fence: expect.any(Number),
      was_existing: false,
      generation: expect.any(Number),
    });
    expect(Date.parse(body.lease_expires_at) - Date.parse(body.allocated_at)).toBe(15 * 60_000);
  });

  it('the same call gets the same pod and fence again, also when asked many times at once', async () => {
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => router.post('/allocate', { call_sid: 'CA1' })),
    );
    expect(new Set(answers.map(({ body }) => `${body.pod_name} ${body.fence}`)).size).toBe(1);
    expect(answers.filter(({ body }) => body.was_existing === false)).toHaveLength(1);
  });

  it('provider, flow and template shape the address; Exotel has its own default template', async () => {
    const url = async (body: object) => (await router.post('/allocate', body)).body.ws_url as string;
    expect(await url({ call_sid: '1', provider: 'exotel', flow: 'v1' })).toMatch(
      /\/exotel\/callback\/template$/,
    );
    expect(await url({ call_sid: '2', template: 'a/b?c d&"é' })).toMatch(
      /\/twilio\/callback\/a%2Fb%3Fc%20d%26%22%C3%A9\/v2$/,
    );
  });

  it.each(['x', '🙂'])('a template may have 256 characters like %s, as in a webhook', async (character) => {
    const template = character.repeat(256);
    const { status, body } = await router.post('/allocate', { call_sid: 'CA1', template });
    expect({ status, segment: body.ws_url?.split('/').at(-2) }).toEqual({
      status: 200,
      segment: encodeURIComponent(template),
    });
  });

  it('nothing free is 503 no_pods with Retry-After, and changes nothing', async () => {
    for (let i = 0; i < 5; i += 1) await router.post('/allocate', { call_sid: `CA${i}` });
    const answer = await router.post('/allocate', { call_sid: 'one too many' });
    expect(answer.status).toBe(503);
    expect(answer.headers['retry-after']).toBe('1');
    expect(answer.body).toEqual({
      success: false,
      error: 'no free pod for this call: tried pool:gold, pool:basic',
      code: 'no_pods',
    });
    expect((await router.get('/calls/one%20too%20many')).status).toBe(404);
  });

  it('release answers once, then 404; a wrong fence is 409 and frees nothing', async () => {
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    const stale = await router.post('/release', { call_sid: 'CA1', fence: call.fence + 1 });
    expect([stale.status, stale.body.code]).toEqual([409, 'stale_fence']);
    const released = await router.post('/release', { call_sid: 'CA1', fence: call.fence });
    expect(released.status).toBe(200);
    expect(released.body).toEqual({
      success: true,
      pod_name: call.pod_name,
      released_to_pool: 'pool:gold',
      was_draining: false,
    });
    const again = await router.post('/release', { call_sid: 'CA1' });
    expect([again.status, again.body.code]).toEqual([404, 'call_not_found']);
  });

  it('release from a draining pod goes to no pool', async () => {
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/drain', { pod_name: call.pod_name });
    const { body } = await router.post('/release', { call_sid: 'CA1' });
    expect(body).toEqual({
      success: true,
      pod_name: call.pod_name,
      released_to_pool: null,
      was_draining: true,
    });
  });

  it('renew moves the lease; a wrong fence is 409', async () => {
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    const { status, body } = await router.post('/renew', { call_sid: 'CA1', fence: call.fence });
    expect(status).toBe(200);
    expect(body).toEqual({ success: true, lease_expires_at: iso, generation: expect.any(Number) });
    expect(Date.parse(body.lease_expires_at)).toBeGreaterThanOrEqual(Date.parse(call.lease_expires_at));
    const stale = await router.post('/renew', { call_sid: 'CA1', fence: call.fence + 1 });
    expect([stale.status, stale.body.code]).toEqual([409, 'stale_fence']);
  });

  it('report renews, adopts and names conflicts, with the fences', async () => {
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    const first = await router.post(`/pod/${call.pod_name}/report`, { calls: ['CA1'] });
    expect(first.status).toBe(200);
    expect(first.body).toEqual({
      at: expect.any(Number),
      renewed: ['CA1'],
      adopted: [],
      ended: [],
      conflicts: [],
      fences: { CA1: call.fence },
      generation: expect.any(Number),
    });
    const odd = ['__proto__', 'constructor', 'a"b'];
    const second = await router.post('/pod/basic-1/report', { calls: ['CA1', ...odd] });
    expect(second.body.conflicts).toEqual(['CA1']);
    expect(second.body.adopted).toEqual(odd);
    expect(Object.keys(JSON.parse(second.text).fences).sort()).toEqual([...odd].sort());
  });

  it('a call that its pod no longer reports ends after the grace', async () => {
    await router.stop();
    router = await startTestRouter(engine.url, { ...base, REPORT_GRACE: '100ms' });
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    const report = () => router.post(`/pod/${call.pod_name}/report`, { calls: [] });
    await report();
    await until(async () => {
      await report();
      return (await router.get('/calls/CA1')).status === 404;
    }, 'the call has ended');
  });

  it.each(['a/b?c d', 'ünï©ødé-🙂', '%41', '..', 'a+b', '🙂'.repeat(256)])(
    'GET /calls/{sid} finds the call %s by its percent-encoded id',
    async (call_sid) => {
      const { body: call } = await router.post('/allocate', { call_sid, merchant_id: 'acme' });
      const { status, body } = await router.get(
        `/calls/${encodeURIComponent(call_sid).replaceAll('.', '%2E')}`,
      );
      expect(status).toBe(200);
      expect(body).toEqual({
        call_sid,
        pod_name: call.pod_name,
        source_pool: 'pool:gold',
        merchant_id: 'acme',
        provider: 'twilio',
        flow: 'v2',
        template: 'order-confirmation',
        allocated_at: call.allocated_at,
        renewed_at: null,
        lease_expires_at: call.lease_expires_at,
        fence: call.fence,
      });
    },
  );
});
