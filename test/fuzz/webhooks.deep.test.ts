/** The providers' webhooks with any form: in their own language or refused, and never believed without a signature. */
import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseForm, parseMultipart, recordFromJson, toRecord } from '../../src/http/providers/form.js';
import {
  twilioSignature,
  verifyExotel,
  verifyPlivo,
  verifyTwilio,
} from '../../src/http/providers/signatures.js';
import { isFinalStatus, PROVIDERS, type Provider } from '../../src/http/providers/status.js';
import { describeOneEngine } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { asAdmin, expectCleanLog, expectGood, secrets, unhurried } from './answers.js';
import { encoded } from './requests.js';
import { fuzzing, fuzzingAtOnce } from './runs.js';
import { damaged, jsonOf, oddJson, oddText } from './values.js';

const sid = fc.constantFrom('CA1', 'CA2', 'CA3');
const status = fc.constantFrom(
  'ringing',
  'in-progress',
  'completed',
  'busy',
  'no-answer',
  'COMPLETED',
  'terminal',
);
const field = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(fc.constantFrom('CallSid', 'CallUUID', 'callsid'), encoded(sid)) },
  {
    weight: 3,
    arbitrary: fc.tuple(
      fc.constantFrom('CallStatus', 'Status', 'EventType', 'Event', 'HangupCause'),
      encoded(status),
    ),
  },
  { weight: 2, arbitrary: fc.tuple(encoded(oddText), encoded(oddText)) },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom('CallSid', 'CallUUID'), encoded(oddText)) },
);
const pairs = fc.array(field, { maxLength: 8 }).map((all) => all.map((pair) => pair.join('=')).join('&'));
const form = fc.oneof(
  { weight: 6, arbitrary: pairs },
  { weight: 1, arbitrary: damaged(pairs) },
  { weight: 1, arbitrary: fc.integer({ min: 990, max: 1100 }).map((count) => 'a=1&'.repeat(count)) },
);
const query = fc
  .array(
    fc.tuple(
      fc.constantFrom('merchant_id', 'flow', 'template', 'CallSid', 'token', 'x'),
      encoded(fc.oneof(fc.constantFrom('acme', 'v2', 'order'), oddText)),
    ),
    { maxLength: 4 },
  )
  .map((all) => all.map((pair) => pair.join('=')).join('&'));
const multipart = fc
  .array(fc.tuple(fc.oneof(fc.constantFrom('CallSid', 'Status'), oddText), fc.oneof(sid, status, oddText)), {
    maxLength: 5,
  })
  .map((all) => {
    const parts = all.map(
      ([name, value]) => `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
    );
    return `${parts.join('')}--b--\r\n`;
  });

describe('the parsers of webhooks', () => {
  it('give pairs or nothing, and a record without a prototype', () => {
    fc.assert(
      fc.property(fc.oneof(form, oddText, multipart, damaged(multipart)), oddText, (text, type) => {
        for (const found of [
          parseForm(text),
          parseForm(Buffer.from(text, 'latin1')),
          parseMultipart(Buffer.from(text), 'multipart/form-data; boundary=b'),
          parseMultipart(Buffer.from(text), `multipart/form-data; boundary=${type}`),
        ]) {
          if (!found) continue;
          expect(found.length).toBeLessThanOrEqual(1000);
          const record = toRecord(found);
          expect(Object.getPrototypeOf(record)).toBeNull();
          for (const provider of PROVIDERS) isFinalStatus(provider, record);
        }
      }),
      fuzzingAtOnce(400),
    );
    fc.assert(
      fc.property(oddJson, (value) => {
        const record = recordFromJson(value);
        expect(Object.values(record).every((one) => typeof one === 'string')).toBe(true);
      }),
      fuzzingAtOnce(500),
    );
  });

  it('believe no signature that was made without the token', () => {
    const header = fc.oneof(oddText, fc.constant(undefined), fc.array(oddText, { maxLength: 2 }));
    const fields = fc.array(fc.tuple(oddText, oddText), { maxLength: 4 });
    fc.assert(
      fc.property(header, header, oddText, fields, (signature, nonce, url, params) => {
        const token = 'the-token';
        const headers = {
          'x-plivo-signature-v3': signature,
          'x-plivo-signature-v3-nonce': nonce,
          'x-plivo-signature-v2': signature,
        };
        expect(verifyTwilio({ token, signature, url, params })).toBe(false);
        expect(verifyPlivo({ token, headers, method: 'POST', url, params })).toBe(false);
        expect(verifyExotel({ token, queryToken: signature, authorization: nonce })).toBe(false);
        const right = twilioSignature(token, url, params);
        expect(verifyTwilio({ token, signature: right, url, params })).toBe(true);
      }),
      fuzzingAtOnce(500),
    );
  });
});

describeOneEngine('a webhook with any body', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, { ...secrets, ...unhurried });
  });
  afterEach(() => router.stop());

  /** Signed like its provider does, over the bytes that are sent. */
  const signed = (provider: Provider, path: string, query: string, body: string, isForm: boolean) => {
    const target = `${path}${query === '' ? '' : `?${query}`}`;
    const url = `http://127.0.0.1:${router.port}${target}`;
    if (provider === 'exotel')
      return { target: `${path}?token=${secrets.EXOTEL_WEBHOOK_TOKEN}&${query}`, headers: {} };
    if (provider === 'plivo') {
      const text = `http://127.0.0.1:${router.port}${path}1`;
      const signature = createHmac('sha256', secrets.PLIVO_AUTH_TOKEN).update(text).digest('base64');
      return { target, headers: { 'x-plivo-signature-v2': signature, 'x-plivo-signature-v2-nonce': '1' } };
    }
    const params = (isForm ? parseForm(body) : undefined) ?? [];
    return {
      target,
      headers: { 'x-twilio-signature': twilioSignature(secrets.TWILIO_AUTH_TOKEN, url, params) },
    };
  };

  it('gets an answer of its provider, and without a signature a refusal', async () => {
    const kinds = fc.oneof(
      { weight: 6, arbitrary: form.map((body) => ({ type: 'application/x-www-form-urlencoded', body })) },
      {
        weight: 2,
        arbitrary: fc
          .oneof(multipart, damaged(multipart))
          .map((body) => ({ type: 'multipart/form-data; boundary=b', body })),
      },
      {
        weight: 1,
        arbitrary: jsonOf(oddJson).map((body) => ({ type: 'application/json', body })),
      },
      {
        weight: 1,
        arbitrary: fc
          .tuple(oddText, oddText)
          .map(([type, body]) => ({ type: type.replace(/[^\x21-\x7e]/g, ''), body })),
      },
    );
    const verb = fc.constantFrom('allocate', 'status');
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...PROVIDERS),
        verb,
        query,
        kinds,
        fc.integer({ min: 0, max: 3 }),
        async (provider, verb, query, { type, body }, lot) => {
          const path = `/api/v1/${provider}/${verb}`;
          const isForm = type === 'application/x-www-form-urlencoded';
          const { target, headers } = signed(provider, path, query, body, isForm);
          const isSigned = lot > 0;
          const asked = isSigned ? target : `${path}?${query}`;
          const sent = { 'content-type': type, ...(isSigned ? headers : {}) } as Record<string, string>;
          const answer = await router.ask(`/${asked}`, { method: 'POST', headers: sent, body });
          expectGood(answer, { asked, type, body, isSigned });
          if (!isSigned) expect(answer.status).toBeGreaterThanOrEqual(400);
          if (answer.status === 200 && verb === 'allocate' && provider !== 'exotel') {
            expect(answer.headers['content-type']).toContain('text/xml');
            expect(answer.text).toMatch(/^<Response(\/>$|>.*<\/Response>$)/s);
          }
          expect(await checkInvariants(engine.redis)).toEqual([]);
        },
      ),
      fuzzing(150),
    );
    for (const call_sid of ['CA1', 'CA2', 'CA3']) await router.post('/release', { call_sid }, asAdmin);
    expectCleanLog(router);
  });
});
