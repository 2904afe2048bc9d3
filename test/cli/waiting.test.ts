/** Calls that wait for a pod, and the settings for them, in the command line. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { documentOf, runner, startTestRouter, useStore } from './support.js';

const store = useStore();
let router: RunningRouter;
const run = runner(() => router.url);

beforeEach(async () => {
  const tiers = { tiers: { gold: { target: 1 } }, hold: { max_wait: '40s' } };
  router = await startTestRouter(await store.emptied(), {
    STATIC_PODS: 'pod-a=gold,v-1=merchant:v,v-2=merchant:v,v-3=merchant:v',
    TIER_CONFIG: JSON.stringify(tiers),
  });
});
afterEach(() => router.stop());
const ask = (callSid: string, merchantId = '') =>
  router.context.router.allocateOrWait({
    callSid,
    merchantId,
    provider: 'twilio',
    flow: 'v2',
    template: 't',
  });

it('lists waiting calls with position, age and reason, counts them, and releases one', async () => {
  await router.context.settings.setMerchant('acme', { max_calls: 1 }, 'test');
  for (const callSid of ['busy', 'CA1']) await ask(callSid, 'acme');
  await ask('CA2');
  const { stdout } = await run('calls --waiting');
  expect(stdout).toMatch(/^CALL +MERCHANT +POSITION +WAITS +UNTIL +REASON$/m);
  expect(stdout).toMatch(/^CA1 +acme +1 +\d+s +\d+s left +max_calls of its merchant$/m);
  expect(stdout).toMatch(/^CA2 +- +1 +\d+s +\d+s left +no free pod$/m);
  expect(stdout).toMatch(/^2 calls$/m);
  const document = documentOf(await run('calls --waiting --limit 1 --json'));
  expect(document).toMatchObject({ waiting: [{ call_sid: 'CA1', reason: 'merchant_limit' }], total: 2 });
  expect((await run('status')).stdout).toMatch(/^calls +1 live, 2 waiting, the oldest for \d+s$/m);
  expect((await run('calls CA1')).stderr).toContain('call "CA1" is not live: it waits for a pod');
  const released = await run('release CA1');
  expect(released.stdout).toBe('call CA1 ended; it was waiting for a pod, and has left the queue\n');
  expect((await run('calls CA1')).stderr).toContain('it was abandoned while it waited for a pod');
  expect((await run('calls --waiting --pool gold')).code).toBe(2);
});

it('sets and shows the rules for waiting', async () => {
  expect((await run('tiers get')).stdout).toMatch(/^hold {5}40s, at most 1000 calls$/m);
  await run(['tiers', 'set', '{"tiers":{"gold":{"target":1}},"hold":{"max_wait":"30s","max_waiting":5}}']);
  expect((await run('tiers get')).stdout).toMatch(/^hold {5}30s, at most 5 calls$/m);
  const options = '--max-wait 20s --max-waiting 7 --priority 5 --weight 2 --max-calls 40';
  const set = await run(`merchants set acme --tier gold ${options} --fallback-number +14155550100`);
  const limits = 'max_calls 40, hold 20s, at most 7 calls, priority 5, weight 2, then +14155550100';
  expect(set.stdout).toContain(limits);
  expect((await run('merchants list')).stdout).toMatch(/^MERCHANT +TIER +POOL +FALLBACK +LIMITS +CHAIN$/m);
  expect(documentOf(await run('merchants get acme --json'))).toMatchObject({
    hold: { max_wait: '20s', max_waiting: 7 },
    priority: 5,
    weight: 2,
    max_calls: 40,
    fallback_number: '+14155550100',
  });
  expect((await run('merchants set acme --weight 0')).code).toBe(2);
  expect((await run('merchants set acme --max-waiting 5')).stderr).toContain(
    'hold.max_wait must be a duration',
  );
});
