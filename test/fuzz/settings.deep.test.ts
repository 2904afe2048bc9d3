/**
 * Tiers and merchants in every shape, sent over HTTP or written to the store. Rejected input changes nothing;
 * accepted input reads back as itself; broken entries in the store cost no call its pod.
 */
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseMerchantConfig, parseStoredMerchant, resolveChain } from '../../src/calls/chain.js';
import { parseTierConfig, parseTierConfigJson, serializeTierConfig } from '../../src/config/tiers.js';
import { describeOneEngine } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { baseEnv, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';
import { expectCleanLog, expectGood, unhurried } from './answers.js';
import { bodyText, merchantConfig, tierConfig, withOneWrong } from './requests.js';
import { fuzzing, fuzzingAtOnce } from './runs.js';
import { damaged, jsonOf, oddJson, oddText } from './values.js';

const anyTiers = fc.oneof(tierConfig, withOneWrong(tierConfig), oddJson);
const anyMerchant = fc.oneof(merchantConfig, withOneWrong(merchantConfig), oddJson);

describe('the parsers', () => {
  it('give a tier configuration that reads back as itself, or problems of one line each', () => {
    fc.assert(
      fc.property(fc.oneof(jsonOf(anyTiers), damaged(jsonOf(tierConfig)), oddText), (text) => {
        const { config, problems, warnings } = parseTierConfigJson(text);
        for (const line of [...problems, ...warnings]) expect(line).not.toMatch(/[\p{Cc}\u2028\u202e]/u);
        expect(config === undefined).toBe(problems.length > 0);
        if (!config) return;
        const again = parseTierConfigJson(serializeTierConfig(config));
        expect(again).toMatchObject({ problems: [], warnings: [] });
        expect(again.config).toEqual(config);
        expect(resolveChain(config, undefined).steps.length).toBeGreaterThan(0);
      }),
      fuzzingAtOnce(500),
    );
  });

  it('give a merchant configuration that reads back as itself, and a chain for any configuration', () => {
    const { config: tiers } = parseTierConfig({ gold: 1, basic: 1 });
    if (!tiers) throw new Error('these are tiers');
    fc.assert(
      fc.property(fc.oneof(jsonOf(anyMerchant), damaged(jsonOf(merchantConfig)), oddText), (text) => {
        const stored = parseStoredMerchant(text);
        expect(stored.problem ?? '').not.toMatch(/[\p{Cc}\u2028\u202e]/u);
        const chain = resolveChain(tiers, stored.config);
        expect(chain.steps.length).toBeGreaterThan(0);
        expect(chain.steps.every((step) => /^(pool|merchant):[\w.-]{1,64}$/.test(step))).toBe(true);
        expect(parseStoredMerchant(JSON.stringify(stored.config))).toEqual({ config: stored.config });
      }),
      fuzzingAtOnce(500),
    );
    fc.assert(
      fc.property(anyMerchant, (value) => {
        const { config, problems } = parseMerchantConfig(value, 'acme');
        for (const line of problems) expect(line).not.toMatch(/[\p{Cc}\u2028\u202e]/u);
        if (config) expect(parseMerchantConfig(config, 'acme')).toEqual({ config, problems: [] });
      }),
      fuzzingAtOnce(300),
    );
  });
});

describeOneEngine('the configuration of a running router', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    // An audit would report the keys that are written by hand here.
    router = await startTestRouter(engine.url, { ...unhurried, AUDIT_INTERVAL: 'off' });
  });
  afterEach(() => router.stop());

  const stored = async () => ({
    tiers: await engine.redis.get('voice:tier:config'),
    version: await engine.redis.get('voice:tier:version'),
    merchants: await engine.redis.hgetall('voice:merchant:config'),
  });
  const put = (path: string, body: string) =>
    router.ask(path, { method: 'PUT', headers: { 'content-type': 'application/json' }, body });

  it('is as before after a refusal, and as was asked after any other answer', async () => {
    const write = fc.oneof(
      fc.tuple(fc.constant('/tiers'), bodyText(tierConfig)),
      fc.tuple(fc.constantFrom('/merchants/acme', '/merchants/constructor'), bodyText(merchantConfig)),
    );
    await fc.assert(
      fc.asyncProperty(write, async ([path, body]) => {
        const before = await stored();
        const answer = await put(path, body);
        expectGood(answer, { path, body });
        if (answer.status !== 200) {
          expect(await stored()).toEqual(before);
          return;
        }
        const shown = (await router.get(path)).body;
        const { version: _, warnings: __, ...said } = answer.body;
        expect(shown).toMatchObject(said);
        // The response can be sent back, and then changes nothing.
        const { version: ___, merchant_id, chain, skipped, ...document } = shown;
        const after = await stored();
        expect((await put(path, JSON.stringify(document))).status).toBe(200);
        expect(await stored()).toEqual(after);
        expect(await checkInvariants(engine.redis, { maxLowered: true, tampered: true })).toEqual([]);
      }),
      fuzzing(100),
    );
    expect((await put('/tiers', baseEnv.TIER_CONFIG)).status).toBe(200);
    expect((await put('/merchants/acme', '{}')).status).toBe(200);
    // The next reconcile adds the pods of a deleted tier again.
    const allocate = () => router.post('/allocate', { call_sid: 'good', merchant_id: 'acme' });
    await until(async () => (await allocate()).status === 200, 'a call gets a pod again');
    expectCleanLog(router);
  });

  it('leaves every call its pod after any write by hand, and is repaired by the next valid one', async () => {
    const text = fc.oneof(jsonOf(anyTiers), damaged(jsonOf(tierConfig)), oddText);
    const place = fc.oneof(
      text.map((value) => ['set', 'voice:tier:config', value]),
      fc
        .tuple(oddText, jsonOf(anyMerchant))
        .map(([id, value]) => ['hset', 'voice:merchant:config', id, value]),
      fc
        .tuple(fc.constantFrom('acme', 'vip', ''), fc.oneof(jsonOf(anyMerchant), oddText))
        .map(([id, value]) => ['hset', 'voice:merchant:config', id, value]),
      fc
        .oneof(oddText, fc.constantFrom('-5', '1.5', '1e400', '99999999999999999999'))
        .map((value) => ['set', 'voice:tier:version', value]),
      fc
        .constantFrom('voice:tier:config', 'voice:tier:version', 'voice:merchant:config')
        .map((key) => ['list', key]),
    );
    let calls = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(place, { minLength: 1, maxLength: 3 }), async (writes) => {
        for (const [how, key = '', ...rest] of writes) {
          if (how === 'set') await engine.redis.set(key, rest[0] ?? '');
          // In one step: the leader writes missing keys again.
          if (how === 'list') await engine.redis.multi().del(key).rpush(key, 'x').exec();
          if (how !== 'hset') continue;
          if ((await engine.redis.type(key)) !== 'hash') await engine.redis.del(key);
          await engine.redis.hset(key, rest[0] ?? '', rest[1] ?? '');
        }
        for (const path of ['/tiers', '/merchants', '/merchants/acme', '/status', '/pods'])
          expectGood(await router.get(path), { path, writes });
        calls += 1;
        const call_sid = `by-hand-${calls}`;
        const given = await router.post('/allocate', { call_sid, merchant_id: 'acme' });
        expectGood(given, writes);
        if (given.status === 200) expectGood(await router.post('/release', { call_sid }), writes);
        const repaired = await put('/merchants/acme', '{}');
        expect(repaired.text, JSON.stringify(writes)).toContain('"merchant_id":"acme"');
        const good = await put('/tiers', baseEnv.TIER_CONFIG);
        expect(good.text, JSON.stringify(writes)).toContain('"default_chain":["gold","basic"]');
        // A tier that was renamed by hand takes its pods along; the next list brings them back.
        await until(
          async () => (await router.post('/allocate', { call_sid })).status === 200,
          'a call gets a pod',
        );
        await router.post('/release', { call_sid });
        await engine.redis.del('voice:merchant:config');
      }),
      fuzzing(30),
    );
    expectCleanLog(router);
  });
});
