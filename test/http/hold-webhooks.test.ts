/** Callers of Twilio and Plivo who are held on the line until a pod is free. */
import { createHmac } from 'node:crypto';
import { afterEach, expect, it, vi } from 'vitest';
import { AppError } from '../../src/errors.js';
import { twilioSignature } from '../../src/http/providers/signatures.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

const tiers = { tiers: { gold: { type: 'exclusive', target: 1 } }, hold: { max_wait: '60s' } };
const env = {
  STATIC_PODS: 'gold-1=gold',
  TIER_CONFIG: JSON.stringify(tiers),
  VOICE_AGENT_BASE_URL: 'wss://voice.example.com',
  PUBLIC_URL: 'https://calls.example.com/router',
};
const busy = 'We are sorry, all of our agents are busy right now. Please call again in a few minutes.';
const please = 'All our agents are busy. Please hold the line.';
const hangUp = {
  twilio: `<Response><Say>${busy}</Say><Hangup/></Response>`,
  plivo: `<Response><Speak>${busy}</Speak><Hangup/></Response>`,
};
const providers = ['twilio', 'plivo'] as const;
type Provider = (typeof providers)[number];

describeOneEngine('held callers', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());
  const start = async (extra: Record<string, string> = {}) => {
    router = await startTestRouter(engine.url, { ...env, ...extra });
    await router.context.router.allocate({
      ...{ callSid: 'busy', merchantId: '', provider: 'twilio', flow: 'v2', template: 't' },
    });
  };
  const idField = { twilio: 'CallSid', plivo: 'CallUUID' };
  const ring = (provider: Provider, callSid: string, query = '', headers = {}) =>
    router.form(`/${provider}/allocate${query}`, { [idField[provider]]: callSid }, headers);
  const release = (callSid: string) => router.context.router.release(callSid);
  /** The path under /api/v1 to which the answer sends the provider. */
  const redirectOf = (xml: string) => {
    const url = /<Redirect method="POST">([^<]*)<\/Redirect>/.exec(xml)?.[1]?.replaceAll('&amp;', '&') ?? '';
    expect(url).toMatch(/^https:\/\/calls\.example\.com\/router\/api\/v1\//);
    return { url, query: url.slice(url.indexOf('?')) };
  };
  const expire = (callSid: string) => engine.redis.hset(`voice:call:${callSid}`, 'wait_until', '1');

  it('hears the message until a pod is free, then the stream', async () => {
    await start();
    const address = 'https://calls.example.com/router/api/v1';
    const query = '?merchant_id=acme&template=a+b%26c';
    const twilio = await ring('twilio', 'CA1', query);
    expect([twilio.status, twilio.headers['content-type']]).toEqual([200, 'text/xml; charset=utf-8']);
    const again = 'merchant_id=acme&amp;template=a+b%26c&amp;hold=1';
    expect(twilio.text).toBe(
      `<Response><Say>${please}</Say><Pause length="2"/><Redirect method="POST">${address}/twilio/allocate?${again}</Redirect></Response>`,
    );
    const plivo = await ring('plivo', 'P1', query);
    expect(plivo.text).toBe(
      `<Response><Speak>${please}</Speak><Wait length="2"/><Redirect method="POST">${address}/plivo/allocate?${again}</Redirect></Response>`,
    );
    const held = await ring('twilio', 'CA1', redirectOf(twilio.text).query);
    expect(held.text).toBe(twilio.text);
    await release('busy');
    const served = await ring('twilio', 'CA1', redirectOf(held.text).query);
    expect(served.text).toMatch(/^<Response><Connect><Stream url="[^"]*\/gold-1\/[^"]*\/a%20b%26c\/v2"\/>/);
    const status = await router.form('/twilio/status', { CallSid: 'CA1', CallStatus: 'completed' });
    expect(status.body.released).toBe(true);
    expect((await ring('plivo', 'P1', redirectOf(plivo.text).query)).text).toContain('<Stream ');
  });

  it('HOLD_AUDIO_URL is played; the position is spoken only when it has improved', async () => {
    await start({
      HOLD_AUDIO_URL: 'https://cdn.example.com/hold.mp3?a=1&b=2',
      HOLD_ANNOUNCE_POSITION: 'true',
    });
    const play = '<Play>https://cdn.example.com/hold.mp3?a=1&amp;b=2</Play>';
    await ring('twilio', 'CA1');
    const second = await ring('twilio', 'CA2');
    expect(second.text).toContain(`<Say>You are number 2 in the queue.</Say>${play}<Redirect`);
    const same = await ring('twilio', 'CA2', redirectOf(second.text).query);
    expect(same.text).toContain(`<Response>${play}<Redirect`);
    await release('CA1');
    const first = await ring('twilio', 'CA2', redirectOf(same.text).query);
    expect(first.text).toContain(`<Say>You are number 1 in the queue.</Say>${play}`);
    const plivo = await ring('plivo', 'P1');
    expect(plivo.text).toContain(`<Speak>You are number 2 in the queue.</Speak>${play}<Redirect`);
  });

  it('the signature of the redirected request is valid', async () => {
    await start({ TWILIO_AUTH_TOKEN: 'twilio-token', PLIVO_AUTH_TOKEN: 'plivo-token' });
    const signed = (provider: Provider, callSid: string, url: string) => {
      const { query } = { query: url.includes('?') ? url.slice(url.indexOf('?')) : '' };
      const fields = { [idField[provider]]: callSid };
      if (provider === 'twilio') {
        const signature = twilioSignature('twilio-token', url, Object.entries(fields));
        return ring(provider, callSid, query, { 'x-twilio-signature': signature });
      }
      const sorted = [...new URLSearchParams(query)].map(([name, value]) => `${name}=${value}`).sort();
      const message = `${url.split('?')[0]}?${sorted.join('&')}.CallUUID${callSid}.123`;
      return ring(provider, callSid, query, {
        'x-plivo-signature-v3': createHmac('sha256', 'plivo-token').update(message).digest('base64'),
        'x-plivo-signature-v3-nonce': '123',
      });
    };
    for (const provider of providers) {
      const url = `${env.PUBLIC_URL}/api/v1/${provider}/allocate?flow=v1&template=a+b%2Fc~'%C3%BC`;
      const held = await signed(provider, `${provider}-1`, url);
      expect(held.status).toBe(200);
      const again = await signed(provider, `${provider}-1`, redirectOf(held.text).url);
      expect([again.status, again.text]).toEqual([200, held.text]);
    }
  });

  it('an expired wait ends with a sentence and a hang-up, or is connected to fallback_number', async () => {
    await start();
    await router.context.settings.setMerchant('acme', { fallback_number: '+14155550100' }, 'test');
    const dial = {
      twilio: '<Response><Dial>+14155550100</Dial></Response>',
      plivo: '<Response><Dial><Number>+14155550100</Number></Dial></Response>',
    };
    for (const provider of providers) {
      for (const merchant of ['acme', 'other']) {
        const callSid = `${provider}-${merchant}`;
        const { query } = redirectOf((await ring(provider, callSid, `?merchant_id=${merchant}`)).text);
        await expire(callSid);
        // The request that finds it expired, and one that comes after the router has ended the wait.
        for (let i = 0; i < 2; i += 1) {
          const over = await ring(provider, callSid, query);
          expect([over.status, over.text]).toEqual([200, (merchant === 'acme' ? dial : hangUp)[provider]]);
        }
      }
    }
    expect((await router.context.store.snapshot()).waitingCalls).toBe(0);
  });

  it('a released call is never queued again; after a flush of the store it is', async () => {
    await start();
    const forget = async () => {
      const keys = ['voice:tombstones:*', 'voice:waiting:released:*'].map((name) => engine.redis.keys(name));
      await engine.redis.del(...(await Promise.all(keys)).flat());
    };
    for (const provider of providers) {
      const { query } = redirectOf((await ring(provider, 'C1')).text);
      await router.form('/twilio/status', { CallSid: 'C1', CallStatus: 'completed' });
      expect((await ring(provider, 'C1', query)).text).toBe(hangUp[provider]);
      expect((await router.context.store.snapshot()).waitingCalls).toBe(0);
      await forget();
      expect((await ring(provider, 'C1', query)).text).toContain('<Redirect');
      await release('C1');
      await forget();
    }
  });

  it('a held caller stays on the line while the store does not answer; a new one gets the error', async () => {
    await start();
    const { query } = redirectOf((await ring('twilio', 'CA1')).text);
    const down = new AppError('store_unavailable', 'the store does not answer');
    const broken = vi.spyOn(router.context.router, 'allocateOrWait').mockRejectedValue(down);
    const held = await ring('twilio', 'CA1', query);
    expect([held.status, redirectOf(held.text).query]).toEqual([200, query]);
    expect((await ring('twilio', 'CA2')).status).toBe(503);
    broken.mockRestore();
    await release('busy');
    expect((await ring('twilio', 'CA1', query)).text).toContain('<Stream ');
  });

  it('a held caller whose pod was removed before it was connected waits again', async () => {
    await start();
    const { query } = redirectOf((await ring('twilio', 'CA1')).text);
    await release('busy');
    await router.context.pools.remove(await router.context.pools.takeEpoch(), ['gold-1'], 'deleted');
    expect(redirectOf((await ring('twilio', 'CA1', query)).text).query).toBe(query);
  });

  it('without hold, over max_waiting and with Exotel the answer is as before', async () => {
    await start();
    const exotel = await router.get('/exotel/allocate?CallSid=E1');
    expect([exotel.status, exotel.body.code, exotel.headers['retry-after']]).toEqual([503, 'no_pods', '1']);
    const { settings } = router.context;
    await settings.setMerchant('acme', { max_calls: 1, hold: { max_wait: '9s', max_waiting: 1 } }, 'test');
    expect((await ring('twilio', 'CA1', '?merchant_id=acme')).text).toContain('<Redirect');
    expect((await ring('twilio', 'CA2', '?merchant_id=acme')).text).toBe(hangUp.twilio);
    await settings.replaceTiers({ tiers: tiers.tiers }, 'test');
    for (const provider of providers) expect((await ring(provider, 'C3')).text).toBe(hangUp[provider]);
  });
});
