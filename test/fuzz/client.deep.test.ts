/** The client before a router that answers anything: a result of the right types, or an error of its own. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type Client, SmartRouterError } from '../../src/client/index.js';
import { fixture } from '../client/scripted-router.js';
import { fuzzing } from './runs.js';
import { damaged, jsonOf, oddJson, oddText, orOdd, some } from './values.js';

const key = 'fuzz-client-key-0123456789';
const time = orOdd(fc.constant('2026-11-15T10:00:00.000Z'), 8);
const sids = orOdd(fc.array(fc.constantFrom('CA1', 'CA2')), 8);
const said = some({
  success: orOdd(fc.constant(true), 8),
  pod_name: orOdd(fc.constant('gold-1'), 8),
  ws_url: orOdd(fc.constant('wss://x/gold-1'), 8),
  source_pool: orOdd(fc.constant('pool:gold'), 8),
  allocated_at: time,
  lease_expires_at: time,
  fence: orOdd(fc.maxSafeNat(), 8),
  was_existing: orOdd(fc.boolean(), 8),
  released_to_pool: orOdd(fc.constantFrom(null, 'pool:gold'), 8),
  was_draining: orOdd(fc.boolean(), 8),
  has_active_call: orOdd(fc.boolean(), 8),
  active_calls: orOdd(fc.nat(), 8),
  message: orOdd(fc.constant('draining'), 8),
  renewed: sids,
  adopted: sids,
  ended: sids,
  conflicts: sids,
  fences: orOdd(fc.constant({ CA1: 1 }), 8),
  at: orOdd(fc.maxSafeNat(), 8),
  error: orOdd(fc.constantFrom('no such thing', `you sent ${key}`)),
  code: orOdd(fc.constantFrom('no_pods', 'call_not_found', 'constructor', 'internal', key)),
});
const text = jsonOf(said);
const header = oddText.map((value) => value.replace(/[^\x21-\x7e]/g, ''));

it('the client turns any response into a valid result or one of its errors', async () => {
  const { router, another } = await fixture();
  const asks: ((client: Client) => Promise<unknown>)[] = [
    (client) => client.allocate({ callSid: 'CA1' }),
    (client) => client.drain('gold-1'),
    (client) => client.undrain('gold-1'),
  ];
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...asks),
      fc.oneof({ weight: 4, arbitrary: text }, damaged(text), oddText, jsonOf(oddJson)),
      fc.constantFrom(200, 200, 200, 201, 400, 401, 404, 409, 429, 500, 503),
      header,
      async (ask, body, status, retryAfter) => {
        router.otherwise = () => ({ status, text: body, headers: { 'retry-after': retryAfter } });
        // A new one for each, because after a few failures a client stops asking for a while.
        const client = another({ retries: 0, apiKey: key });
        const answer = await ask(client).catch((error: unknown) => error);
        await client.close();
        if (answer instanceof Error) {
          expect(answer, String(answer.stack)).toBeInstanceOf(SmartRouterError);
          expect(answer.message).not.toContain(key);
          expect(answer.message).not.toContain('native code');
          expect(answer.message.length).toBeLessThan(3000);
          return;
        }
        expect(status).toBeLessThan(300);
      },
    ),
    fuzzing(150),
  );
});
