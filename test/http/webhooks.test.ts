/** The providers' webhooks without tokens: answers, escaping, release by status. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const env = { STATIC_PODS: 'gold-1=gold', VOICE_AGENT_BASE_URL: 'wss://voice.example.com' };
const path = '/ws/pod/gold-1/agent/voice/breeze-buddy';
const busy = 'We are sorry, all of our agents are busy right now. Please call again in a few minutes.';

describeOneEngine('webhooks', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, env);
  });
  afterEach(() => router.stop());
  const liveCalls = async () => (await router.get('/status')).body.active_calls as number;

  it('Twilio gets TwiML with the stream, and the same again for the same call', async () => {
    for (let i = 0; i < 2; i += 1) {
      const answer = await router.form('/twilio/allocate', { CallSid: 'CA1', From: '+15550001' });
      expect(answer.status).toBe(200);
      expect(answer.headers['content-type']).toBe('text/xml; charset=utf-8');
      expect(answer.text).toBe(
        `<Response><Connect><Stream url="wss://voice.example.com${path}/twilio/callback/order-confirmation/v2"/></Connect></Response>`,
      );
    }
    expect(await liveCalls()).toBe(1);
  });

  it('Plivo gets its own XML', async () => {
    const answer = await router.form('/plivo/allocate?flow=v1', { CallUUID: 'P1' });
    expect(answer.status).toBe(200);
    expect(answer.text).toBe(
      `<Response><Stream bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000">wss://voice.example.com${path}/plivo/callback/order-confirmation</Stream></Response>`,
    );
  });

  it('Exotel gets JSON, by GET with a query, by JSON, by form and by multipart', async () => {
    const expected = { url: `wss://voice.example.com${path}/exotel/callback/template/v2` };
    const multipart = '--x\r\ncontent-disposition: form-data; name="CallSid"\r\n\r\nE1\r\n--x--\r\n';
    const answers = [
      await router.get('/exotel/allocate?CallSid=E1'),
      await router.post('/exotel/allocate', { CallSid: 'E1' }),
      await router.form('/exotel/allocate', { CallSid: 'E1' }),
      await router.ask('/exotel/allocate', {
        method: 'POST',
        headers: { 'content-type': 'multipart/form-data; boundary=x' },
        body: multipart,
      }),
    ];
    for (const { status, body } of answers) expect([status, body]).toEqual([200, expected]);
    expect(await liveCalls()).toBe(1);
  });

  it.each([
    ['a b', 'a%20b'],
    ['<&>"', '%3C%26%3E%22'],
    ["it's", 'it&apos;s'],
    ['a/../b', 'a%2F..%2Fb'],
    ['{pod}', '%7Bpod%7D'],
    ['ü🙂', '%C3%BC%F0%9F%99%82'],
  ])('template %s stays one path segment, percent-encoded and XML-escaped', async (template, encoded) => {
    const query = new URLSearchParams({ template, merchant_id: 'acme' });
    const answer = await router.form(`/twilio/allocate?${query}`, { CallSid: 'CA1' });
    expect(answer.text).toContain(`/twilio/callback/${encoded}/v2"/>`);
    expect((await router.get('/calls/CA1')).body).toMatchObject({ template, merchant_id: 'acme' });
  });

  it('a query parameter sent twice counts once: the first', async () => {
    const answer = await router.form(
      '/twilio/allocate?flow=v1&flow=9&template=a&template=1&merchant_id=m&merchant_id=n',
      { CallSid: 'CA1' },
    );
    expect(answer.text).toContain('/twilio/callback/a"/>');
    expect((await router.get('/calls/CA1')).body).toMatchObject({
      flow: 'v1',
      template: 'a',
      merchant_id: 'm',
      provider: 'twilio',
    });
  });

  it.each([
    ['/twilio/allocate', {}, /^CallSid must be a string, got nothing/],
    ['/twilio/allocate', { CallSid: 'x'.repeat(257) }, /^CallSid must have at most 256 characters/],
    ['/plivo/allocate', { CallSid: 'P1' }, /^CallUUID must be a string/],
    ['/twilio/allocate?merchant_id=a%20b', { CallSid: 'CA1' }, /^merchant_id must be 1 to 64/],
    ['/twilio/allocate?template=..', { CallSid: 'CA1' }, /^template must be usable/],
    ['/twilio/allocate?flow=%00', { CallSid: 'CA1' }, /^flow must be usable/],
  ])('%s with %o is refused and takes no pod', async (url, fields, sentence) => {
    const answer = await router.form(url, fields as Record<string, string>);
    expect([answer.status, answer.body.code]).toEqual([400, 'invalid_request']);
    expect(answer.body.error).toMatch(sentence);
    expect(await liveCalls()).toBe(0);
  });

  it.each(['twilio', 'plivo'])('%s must send a form: anything else is 415', async (provider) => {
    for (const type of ['application/json', 'text/plain', 'multipart/form-data; boundary=x']) {
      const headers = { 'content-type': type };
      const answer = await router.ask(`/${provider}/allocate`, { method: 'POST', headers, body: '{}' });
      expect([answer.status, answer.body.code]).toEqual([415, 'unsupported_media_type']);
      expect(answer.body.error).toMatch(/^the body must be a form/);
    }
  });

  it('Exotel may not send XML, nor broken JSON or a form without end', async () => {
    const send = (type: string, body: string) =>
      router.ask('/exotel/allocate', { method: 'POST', headers: { 'content-type': type }, body });
    expect((await send('text/xml', '<a/>')).status).toBe(415);
    expect((await send('application/json', '{')).body.code).toBe('invalid_request');
    expect((await send('multipart/form-data; boundary=x', '--y')).body.code).toBe('invalid_request');
    expect((await send('application/x-www-form-urlencoded', 'a&'.repeat(1001))).body.code).toBe(
      'invalid_request',
    );
  });

  describe('when nothing is free', () => {
    beforeEach(() => router.post('/allocate', { call_sid: 'other' }));

    it('Twilio and Plivo get a sentence and a hangup, with 200; Exotel gets 503', async () => {
      const twilio = await router.form('/twilio/allocate', { CallSid: 'CA1' });
      expect([twilio.status, twilio.text]).toEqual([200, `<Response><Say>${busy}</Say><Hangup/></Response>`]);
      const plivo = await router.form('/plivo/allocate', { CallUUID: 'P1' });
      expect([plivo.status, plivo.text]).toEqual([
        200,
        `<Response><Speak>${busy}</Speak><Hangup/></Response>`,
      ]);
      expect(plivo.headers['content-type']).toBe('text/xml; charset=utf-8');
      const exotel = await router.get('/exotel/allocate?CallSid=E1');
      expect([exotel.status, exotel.body.code, exotel.headers['retry-after']]).toEqual([503, 'no_pods', '1']);
      expect(exotel.headers['content-type']).toMatch(/^application\/json/);
    });
  });

  it.each([
    ['twilio', { CallSid: 'C1', CallStatus: 'completed' }],
    ['twilio', { CallSid: 'C1', CallStatus: 'no-answer' }],
    ['plivo', { CallUUID: 'C1', Event: 'Hangup', HangupCause: 'NORMAL_CLEARING' }],
    ['plivo', { CallUUID: 'C1', CallStatus: 'busy' }],
    ['exotel', { CallSid: 'C1', Status: 'failed' }],
    ['exotel', { CallSid: 'C1', EventType: 'terminal' }],
  ])('%s status %o releases the call once and is 200 every time', async (provider, fields) => {
    await router.post('/allocate', { call_sid: 'C1' });
    const first = await router.form(`/${provider}/status`, fields as unknown as Record<string, string>);
    expect([first.status, first.body]).toEqual([200, { success: true, released: true }]);
    const again = await router.form(`/${provider}/status`, fields as unknown as Record<string, string>);
    expect([again.status, again.body]).toEqual([200, { success: true, released: false }]);
    expect(await liveCalls()).toBe(0);
  });

  it('a status that is not final, or names no call, releases nothing', async () => {
    await router.post('/allocate', { call_sid: 'C1' });
    for (const CallStatus of ['ringing', 'in-progress', 'queued', 'nonsense', '']) {
      const { status, body } = await router.form('/twilio/status', { CallSid: 'C1', CallStatus });
      expect([status, body]).toEqual([200, { success: true, released: false }]);
    }
    await router.form('/twilio/status', { CallStatus: 'completed' });
    expect(await liveCalls()).toBe(1);
  });

  it("Plivo's hangup at the answer address releases the call and takes no pod", async () => {
    await router.form('/plivo/allocate', { CallUUID: 'P1' });
    const answer = await router.form('/plivo/allocate', {
      CallUUID: 'P1',
      Event: 'Hangup',
      CallStatus: 'completed',
    });
    expect([answer.status, answer.text]).toEqual([200, '<Response/>']);
    expect(await liveCalls()).toBe(0);
  });

  it('a final status is 200 also while the store is unreachable, with a log line', async () => {
    await router.stop();
    router = await startTestRouter(engine.url, { ...env, ...impatient });
    await router.post('/allocate', { call_sid: 'C1' });
    await engine.pause();
    try {
      const answer = await router.form('/twilio/status', { CallSid: 'C1', CallStatus: 'completed' });
      expect([answer.status, answer.body]).toEqual([200, { success: true, released: false }]);
    } finally {
      await engine.resume();
    }
    expect(router.logText()).toContain('releasing a finished call failed');
    await until(async () => (await router.get('/ready')).status === 200, 'the store is back');
  });
});
