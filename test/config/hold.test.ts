/** Rules for waiting calls: `hold` of tiers and merchants, limits of merchants, and their stored forms. */
import { describe, expect, it } from 'vitest';
import { parseMerchantConfig, parseStoredMerchant } from '../../src/calls/chain.js';
import { parseStoredHold } from '../../src/config/hold.js';
import { parseTierConfig, serializeTierConfig } from '../../src/config/tiers.js';

const tiers = { gold: { target: 1 } };
const hold = { max_wait: '1m', max_waiting: 500 };

describe('hold of the tier configuration', () => {
  it('is accepted beside tiers, with a default for max_waiting and a normalised duration', () => {
    expect(parseTierConfig({ tiers }).config).not.toHaveProperty('hold');
    expect(parseTierConfig({ tiers, hold: { max_wait: '60s' } }).config?.hold).toEqual({
      max_wait: '1m',
      max_waiting: 1000,
    });
    expect(parseTierConfig({ tiers, default_chain: ['gold'], hold }).config?.hold).toEqual(hold);
  });

  it.each([{ gold: 10, hold }, { gold: { target: 10 }, hold }, { hold }])(
    'is refused with advice in the short forms: %j',
    (input) => {
      expect(parseTierConfig(input).problems).toEqual([
        'hold stands beside "tiers": {"tiers":{...},"hold":{...}}',
      ]);
    },
  );

  it('is not mistaken for a tier of that name', () => {
    expect(parseTierConfig({ gold: 1, hold: 2 }).config?.defaultChain).toEqual(['gold', 'hold']);
    expect(parseTierConfig({ hold: { type: 'shared' } }).config?.defaultChain).toEqual(['hold']);
    const both = parseTierConfig({ tiers: { ...tiers, hold: {} }, hold }).config;
    expect(both?.hold).toEqual(hold);
    expect(both?.defaultChain).toEqual(['gold', 'hold']);
  });

  it('is not part of the text that older versions read', () => {
    const config = parseTierConfig({ tiers, hold }).config;
    expect(config && serializeTierConfig(config)).toBe(
      '{"tiers":{"gold":{"type":"exclusive","target":1}},"default_chain":["gold"]}',
    );
  });

  it.each<[unknown, string]>([
    ['60s', 'hold must be an object like {"max_wait":"60s"}, got "60s"'],
    [null, 'hold must be an object'],
    [{}, 'hold.max_wait must be a duration from 1s to 1h like "60s", got nothing'],
    [{ max_wait: 60 }, 'hold.max_wait must be a duration'],
    [{ max_wait: '999ms' }, 'hold.max_wait must be a duration'],
    [{ max_wait: '61m' }, 'hold.max_wait must be a duration'],
    [{ max_wait: '1m', max_waiting: 0 }, 'hold.max_waiting must be a whole number from 1 to 100000, got 0'],
    [{ max_wait: '1m', max_waiting: '5' }, 'hold.max_waiting must be a whole number'],
    [
      { max_wait: '1m', max_wating: 5 },
      'hold has unknown keys: "max_wating"; known are max_wait, max_waiting',
    ],
  ])('names the field, the rule and the value for %j', (wrong, text) => {
    const { config, problems } = parseTierConfig({ tiers, hold: wrong });
    expect(config).toBeUndefined();
    expect(problems).toEqual([expect.stringContaining(text)]);
  });
});

describe('hold in the store', () => {
  it('reads the text that it wrote', () => {
    expect(parseStoredHold(JSON.stringify(hold))).toEqual({ hold });
  });

  it.each([undefined, null, ''])('%j means that calls do not wait', (text) => {
    expect(parseStoredHold(text)).toEqual({});
  });

  it.each(['60s', '[]', '{"max_wait":"2d"}', '{"max_wait":1}'])(
    'a malformed text gives no rules and the reason: %s',
    (text) => {
      expect(parseStoredHold(text)).toEqual({ problem: expect.stringMatching(/\S/) });
    },
  );
});

describe('limits of a merchant', () => {
  const limits = { hold, priority: 5, weight: 2, max_calls: 40, fallback_number: '+14155550100' };

  it('are read, stored and read again unchanged', () => {
    const { config } = parseMerchantConfig({ tier: 'gold', ...limits });
    expect(config).toEqual({ tier: 'gold', ...limits });
    expect(parseStoredMerchant(JSON.stringify(config))).toEqual({ config: { tier: 'gold', ...limits } });
  });

  it.each([
    [{ priority: 10 }, 'priority must be a whole number from 0 to 9, got 10'],
    [{ weight: 0 }, 'weight must be a whole number from 1 to 100, got 0'],
    [{ weight: 1.5 }, 'weight must be a whole number'],
    [{ max_calls: 0 }, 'max_calls must be a whole number from 1 to 1000000, got 0'],
    [{ max_calls: null }, 'max_calls must be a whole number'],
    [{ fallback_number: '911; rm' }, 'fallback_number must be a telephone number like "+14155550100"'],
    [{ fallback_number: 4155550100 }, 'fallback_number must be a telephone number'],
    [{ hold: { max_waiting: 3 } }, 'hold.max_wait must be a duration'],
  ])('names the field, the rule and the value for %j', (wrong, text) => {
    expect(parseMerchantConfig(wrong, 'acme')).toEqual({
      problems: [expect.stringContaining(`acme: ${text}`)],
    });
  });

  it('of a malformed stored entry do not apply; an unset field of the Go router is accepted', () => {
    expect(parseStoredMerchant('{"tier":"gold","weight":900}')).toEqual({
      config: {},
      problem: expect.stringContaining('weight'),
    });
    expect(parseStoredMerchant('{"tier":"gold","max_calls":null,"fallback_number":""}')).toEqual({
      config: { tier: 'gold' },
    });
  });
});
