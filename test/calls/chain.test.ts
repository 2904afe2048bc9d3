import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type MerchantConfig,
  parseMerchantConfig,
  parseStoredMerchant,
  resolveChain,
} from '../../src/calls/chain.js';
import { defaultTierConfig, parseTierConfig, type TierConfig } from '../../src/config/tiers.js';

const tiers = parseTierConfig({
  tiers: { gold: {}, standard: {}, basic: { type: 'shared' }, extra: { type: 'shared' }, acme: {} },
  default_chain: ['gold', 'standard', 'basic'],
}).config as TierConfig;

const all = ['pool:gold', 'pool:standard', 'pool:basic'];
const stepsOf = (merchant?: MerchantConfig, known?: ReadonlySet<string>) =>
  resolveChain(tiers, merchant, known).steps;

describe('resolving the chain', () => {
  it('is the default chain for a merchant without configuration', () => {
    expect(resolveChain(tiers)).toEqual({ steps: all, skipped: [] });
    expect(stepsOf({})).toEqual(all);
  });

  it('starts at the tier of the merchant', () => {
    expect(stepsOf({ tier: 'standard' })).toEqual(['pool:standard', 'pool:basic']);
    expect(stepsOf({ tier: 'basic' })).toEqual(['pool:basic']);
  });

  it.each(['nope', 'extra', 'acme', 'constructor'])(
    'is the whole default chain for tier %s outside it',
    (tier) => {
      expect(resolveChain(tiers, { tier })).toEqual({
        steps: all,
        skipped: [{ step: tier, reason: 'tier is not in the default chain' }],
      });
    },
  );

  it('is the fallback if set, for any tier; tiers outside the chain count too', () => {
    expect(stepsOf({ tier: 'gold', fallback: ['basic', 'extra', 'acme', 'merchant:other'] })).toEqual([
      'pool:basic',
      'pool:extra',
      'merchant:acme',
      'merchant:other',
    ]);
  });

  it('puts the pool in front of everything', () => {
    expect(stepsOf({ pool: 'acme' })).toEqual(['merchant:acme', ...all]);
    expect(stepsOf({ pool: 'acme', tier: 'basic' })).toEqual(['merchant:acme', 'pool:basic']);
    expect(stepsOf({ pool: 'acme', fallback: ['basic'] })).toEqual(['merchant:acme', 'pool:basic']);
  });

  it('keeps the first of equal steps, also when a tier name and merchant:{id} mean the same pool', () => {
    expect(stepsOf({ pool: 'acme', fallback: ['gold', 'acme', 'merchant:acme', 'gold'] })).toEqual([
      'merchant:acme',
      'pool:gold',
    ]);
  });

  it('skips unknown steps with a reason', () => {
    expect(
      resolveChain(tiers, { pool: 'gone', fallback: ['nope', 'gold', 'merchant:x'] }, new Set()),
    ).toEqual({
      steps: ['pool:gold'],
      skipped: [
        { step: 'merchant:gone', reason: 'no such merchant pool' },
        { step: 'nope', reason: 'no such tier' },
        { step: 'merchant:x', reason: 'no such merchant pool' },
      ],
    });
  });

  it('knows merchant pools from the tiers and from the set', () => {
    const fallback = ['merchant:acme', 'merchant:labelled', 'merchant:gold'];
    expect(stepsOf({ fallback }, new Set(['labelled']))).toEqual(['merchant:acme', 'merchant:labelled']);
    expect(stepsOf({ fallback })).toEqual(fallback);
  });

  it('keeps a merchant on its own pods only when the fallback says so', () => {
    expect(stepsOf({ pool: 'acme', fallback: ['merchant:acme'] })).toEqual(['merchant:acme']);
  });

  it.each([[[]], [['nope']], [['merchant:gone']]])(
    'takes a fallback without usable steps (%j) as not given',
    (fallback) => {
      expect(stepsOf({ fallback }, new Set())).toEqual(all);
      expect(stepsOf({ fallback, tier: 'basic' }, new Set())).toEqual(['pool:basic']);
      expect(stepsOf({ fallback, pool: 'acme' }, new Set())).toEqual(['merchant:acme', ...all]);
    },
  );

  it('is never empty and never repeats a pool', () => {
    const name = fc.constantFrom('gold', 'standard', 'overflow', 'acme', 'nope', '__proto__');
    const step = fc.oneof(
      name,
      name.map((id) => `merchant:${id}`),
      fc.string(),
    );
    const merchant = fc.record(
      { tier: name, pool: name, fallback: fc.array(step, { maxLength: 32 }) },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(merchant, fc.option(fc.array(name), { nil: undefined }), (config, known) => {
        const { steps } = resolveChain(defaultTierConfig, config, known && new Set(known));
        expect(steps.length).toBeGreaterThan(0);
        expect(new Set(steps).size).toBe(steps.length);
      }),
    );
  });
});

describe('a merchant configuration from the API', () => {
  it('is accepted unchanged', () => {
    const config = { tier: 'gold', pool: 'acme', fallback: ['gold', 'merchant:acme'] };
    expect(parseMerchantConfig(config)).toEqual({ config, problems: [] });
    expect(parseMerchantConfig({})).toEqual({ config: {}, problems: [] });
  });

  it('is refused with every problem at once', () => {
    expect(
      parseMerchantConfig(
        { tier: '', pool: 'merchant:acme', fallback: ['gold', 'pool:gold', 7], teir: 1 },
        'body',
      ),
    ).toEqual({
      problems: [
        'body: unknown keys: "teir"; known are tier, pool, fallback, hold, priority, weight, max_calls, fallback_number',
        'body: tier must be a tier name (1 to 64 of A-Z a-z 0-9 _ . -), got ""',
        'body: pool must be a merchant pool without "merchant:" in front (1 to 64 of A-Z a-z 0-9 _ . -), got "merchant:acme"',
        'body: fallback[1] must be a tier name or merchant:{id}, got "pool:gold"',
        'body: fallback[2] must be a tier name or merchant:{id}, got 7',
      ],
    });
  });

  it.each([null, [], 'gold', 3, { fallback: 'gold' }, { fallback: null }, { tier: null }])(
    'is refused when it is %j',
    (input) => {
      const result = parseMerchantConfig(input);
      expect(result.config).toBeUndefined();
      expect(result.problems).toHaveLength(1);
    },
  );

  it('takes 32 fallback steps and refuses 33', () => {
    const fallback = (count: number) => ({ fallback: Array.from({ length: count }, () => 'gold') });
    expect(parseMerchantConfig(fallback(32)).problems).toEqual([]);
    expect(parseMerchantConfig(fallback(33)).problems).toEqual([
      'merchant: fallback must have at most 32 steps, got 33',
    ]);
  });

  it('never makes the parser throw', () => {
    fc.assert(
      fc.property(fc.oneof(fc.jsonValue(), fc.anything()), (input) => {
        const { config, problems } = parseMerchantConfig(input);
        expect(config === undefined).toBe(problems.length > 0);
      }),
    );
  });
});

describe('a stored merchant configuration', () => {
  it('is accepted without unknown keys and the empty fields of the Go router', () => {
    expect(parseStoredMerchant('{"tier":"gold","pool":"","fallback":null,"since":2031}')).toEqual({
      config: { tier: 'gold' },
    });
  });

  it.each([
    '',
    'null',
    '[]',
    '{',
    '"gold"',
    '{"tier":5}',
    '{"fallback":["a b"]}',
    '{"tier":"gold","pool":{}}',
  ])('counts as empty, with the reason, when it is %j', (json) => {
    const { config, problem } = parseStoredMerchant(json);
    expect(config).toEqual({});
    expect(problem).toBeTruthy();
  });

  it('reads the entry that it wrote', () => {
    const id = fc.stringMatching(/^[A-Za-z0-9_.-]{1,64}$/);
    const merchant = fc.record(
      {
        tier: id,
        pool: id,
        fallback: fc.array(
          fc.oneof(
            id,
            id.map((x) => `merchant:${x}`),
          ),
          { maxLength: 32 },
        ),
      },
      { requiredKeys: [], noNullPrototype: true },
    );
    fc.assert(
      fc.property(merchant, (config) => {
        expect(parseStoredMerchant(JSON.stringify(config))).toEqual({ config });
        expect(parseMerchantConfig(config)).toEqual({ config, problems: [] });
      }),
    );
  });

  it('never makes the parser throw', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
        parseStoredMerchant(text);
      }),
    );
  });
});
