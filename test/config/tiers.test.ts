import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  callSidProblem,
  defaultTierConfig,
  isName,
  isPodName,
  type PoolId,
  parseTierConfig,
  parseTierConfigJson,
  poolOfTier,
  poolsOf,
  serializeTierConfig,
  type Tier,
  type TierConfig,
  tierNameOf,
} from '../../src/config/tiers.js';

function parsed(input: unknown): TierConfig {
  const { config, problems } = parseTierConfig(input);
  expect(problems).toEqual([]);
  if (!config) throw new Error('no configuration');
  return config;
}

const problemsOf = (input: unknown) => {
  const result = parseTierConfig(input);
  expect(result.config).toBeUndefined();
  expect(result.problems.length).toBeGreaterThan(0);
  return result.problems;
};

const envelope = {
  tiers: { gold: { type: 'exclusive', target: 1 }, basic: { type: 'shared', target: 1, max_concurrent: 3 } },
  default_chain: ['gold', 'basic'],
};

const gold: Tier = { type: 'exclusive', target: 1, maxConcurrent: 1 };
const basic: Tier = { type: 'shared', target: 1, maxConcurrent: 3 };

describe('the three forms', () => {
  it('reads the envelope', () => {
    const config = parsed(envelope);
    expect({ ...config.tiers }).toEqual({ gold, basic });
    expect(config.defaultChain).toEqual(['gold', 'basic']);
  });

  it('reads the map without the envelope and builds the chain, exclusive tiers first, each by name', () => {
    const config = parsed({ b: { type: 'shared' }, a: { type: 'shared' }, z: {}, c: {} });
    expect(config.defaultChain).toEqual(['c', 'z', 'a', 'b']);
  });

  it('reads name to target as exclusive tiers, chain by name', () => {
    const config = parsed({ standard: 20, gold: 10 });
    expect(config.tiers.gold).toEqual({ type: 'exclusive', target: 10, maxConcurrent: 1 });
    expect(config.defaultChain).toEqual(['gold', 'standard']);
  });

  it('fills in type, target and max_concurrent', () => {
    const config = parsed({ tiers: { a: {}, b: { type: 'shared' } } });
    expect(config.tiers.a).toEqual({ type: 'exclusive', target: 0, maxConcurrent: 1 });
    expect(config.tiers.b).toEqual({ type: 'shared', target: 0, maxConcurrent: 5 });
  });

  it('takes a null chain, as Go writes it, for a missing one', () => {
    expect(parsed({ ...envelope, default_chain: null }).defaultChain).toEqual(['gold', 'basic']);
  });

  it('keeps gold, standard, overflow in that order when nothing is set', () => {
    expect(defaultTierConfig.defaultChain).toEqual(['gold', 'standard', 'overflow']);
    expect(poolsOf(defaultTierConfig).map(({ id, target }) => [id, target])).toEqual([
      ['pool:gold', 10],
      ['pool:standard', 20],
      ['pool:overflow', 5],
    ]);
  });

  it('turns -0 into 0', () => {
    expect(Object.is(parseTierConfigJson('{"gold":-0}').config?.tiers.gold?.target, 0)).toBe(true);
  });
});

describe('names that look like keys', () => {
  it('takes a tier called tiers in the map', () => {
    const config = parsed({ tiers: { type: 'shared', target: 2 }, gold: { target: 1 } });
    expect(Object.keys(config.tiers)).toEqual(['gold', 'tiers']);
  });

  it('takes tiers called tiers and default_chain as targets', () => {
    expect(parsed({ tiers: 1, default_chain: 2 }).defaultChain).toEqual(['default_chain', 'tiers']);
  });

  it('takes a tier called default_chain in the map', () => {
    expect(parsed({ default_chain: { target: 2 } }).tiers.default_chain?.target).toBe(2);
  });

  it('takes tiers called type and target inside the envelope', () => {
    expect(Object.keys(parsed({ tiers: { type: { target: 1 }, target: {} } }).tiers)).toEqual([
      'target',
      'type',
    ]);
  });

  it.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty'])(
    'takes %s as a tier like any other',
    (name) => {
      for (const text of [
        `{"${name}":7}`,
        `{"${name}":{"target":7}}`,
        `{"tiers":{"${name}":{"target":7}}}`,
      ]) {
        const { config, problems } = parseTierConfigJson(text);
        expect(problems).toEqual([]);
        expect(config && poolsOf(config)).toMatchObject([{ id: `pool:${name}`, target: 7 }]);
        expect(config && parseTierConfigJson(serializeTierConfig(config)).config).toEqual(config);
      }
      expect(poolOfTier(defaultTierConfig, name)).toBeUndefined();
      expect(Object.hasOwn(Object.prototype, 'target')).toBe(false);
    },
  );

  it('does not find inherited names in the chain', () => {
    const { config, warnings } = parseTierConfig({ ...envelope, default_chain: ['constructor', 'gold'] });
    expect(config?.defaultChain).toEqual(['gold']);
    expect(warnings).toEqual(['default_chain[0] names no tier: "constructor" is dropped']);
  });
});

describe('warnings', () => {
  it('drops unknown and doubled names from the chain', () => {
    const { config, warnings } = parseTierConfig({ ...envelope, default_chain: ['x', 'basic', 'basic'] });
    expect(config?.defaultChain).toEqual(['basic']);
    expect(warnings).toHaveLength(2);
    expect(warnings[1]).toContain('default_chain[2] repeats "basic"');
  });

  it.each([[[]], [['nope']]])('says that an emptied chain (%j) is built from all tiers', (default_chain) => {
    const { config, warnings } = parseTierConfig({ ...envelope, default_chain });
    expect(config?.defaultChain).toEqual(['gold', 'basic']);
    expect(warnings.at(-1)).toContain('built from all tiers');
  });
});

describe('refusals', () => {
  it('reports every problem at once, each with its path', () => {
    expect(
      problemsOf({
        tiers: {
          gold: { target: 'ten', tpye: 'shared' },
          two: { type: 'exclusive', max_concurrent: 2 },
          three: { type: 'shared', max_concurrent: 0 },
          four: { type: null },
          five: 5,
          'a b': {},
        },
        default_chain: [1],
        chain: [],
      }),
    ).toEqual([
      'unknown keys beside tiers, default_chain and hold: "chain"; tiers go inside "tiers"',
      'not a tier name: "a b"; use 1 to 64 of the characters A-Z a-z 0-9 _ . -',
      'tiers.gold has unknown keys: "tpye"; known are type, target, max_concurrent',
      'tiers.gold.target must be a whole number from 0 to 1000000, got "ten"',
      'tiers.two.max_concurrent must be 1 or absent, got 2: an exclusive pod serves one call; use type "shared" for more',
      'tiers.three.max_concurrent must be a whole number from 1 to 10000, got 0',
      'tiers.four.type must be "exclusive" or "shared", got null',
      'tiers.five must be an object like {"target":5}, got 5: numbers alone are accepted only when every tier is one',
      'default_chain[0] must be a tier name, got 1',
    ]);
  });

  it.each([
    [null, 'got null'],
    [[], 'got a list'],
    [['gold'], 'got a list'],
    ['gold', 'got "gold"'],
    [10, 'got 10'],
    [undefined, 'got nothing'],
    [{}, 'must name at least one tier'],
    [{ tiers: {} }, 'tiers must name at least one tier'],
    [{ tiers: [] }, 'tiers must be an object'],
    [{ tiers: null }, 'tiers must be an object'],
    [
      { default_chain: ['gold'], gold: { target: 1 } },
      'unknown keys beside tiers, default_chain and hold: "gold"',
    ],
    [{ tiers: { gold: {} }, default_chain: 'gold' }, 'default_chain must be a list'],
    [{ tiers: { gold: 10 } }, 'tiers.gold must be an object like {"target":10}'],
    [{ gold: { target: 1 }, standard: 20 }, 'standard must be an object like {"target":20}'],
    [{ gold: '10' }, 'gold must be a whole number from 0 to 1000000, got "10"'],
    [{ gold: 1.5 }, 'gold must be a whole number'],
    [{ gold: -1 }, 'gold must be a whole number'],
    [{ gold: 1_000_001 }, 'gold must be a whole number'],
    [{ gold: [] }, 'gold must be a whole number'],
    [{ gold: { type: 'shared', max_concurrent: 10_001 } }, 'gold.max_concurrent must be a whole number'],
    [{ gold: { target: null } }, 'gold.target must be a whole number'],
    [{ '': 1 }, 'not a tier name: ""'],
    [{ 'merchant:acme': 1 }, 'not a tier name'],
  ])('refuses %j', (input, message) => {
    expect(problemsOf(input).join('\n')).toContain(message);
  });

  it('takes 200 tiers and refuses 201', () => {
    const tiers = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`t${i}`, i]));
    expect(parsed(tiers(200)).defaultChain).toHaveLength(200);
    expect(problemsOf(tiers(201))).toEqual(['must name at most 200 tiers, found 201 names']);
  });

  it('names the field it was given, and reports broken JSON on one line', () => {
    const { problems } = parseTierConfigJson('{\n"gold": ten\n}', 'tiers: ');
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(/^tiers: is not valid JSON: .+$/);
    expect(parseTierConfigJson('').problems).toHaveLength(1);
    expect(parseTierConfigJson(' '.repeat(300_000)).problems[0]).toContain('at most');
  });

  it('never throws for any JSON, and returns a configuration or problems of one line', () => {
    const value = fc.oneof(fc.jsonValue(), fc.anything());
    const key = fc.constantFrom('tiers', 'default_chain', 'gold', '__proto__', 'type', 'target');
    const near = fc.dictionary(key, fc.oneof(value, fc.dictionary(key, value)));
    fc.assert(
      fc.property(fc.oneof(value, near), (input) => {
        const { config, problems } = parseTierConfig(input);
        expect(config === undefined).toBe(problems.length > 0);
        for (const problem of problems) expect(problem).not.toContain('\n');
      }),
    );
  });
});

const name = fc.stringMatching(/^[A-Za-z0-9_.-]{1,64}$/);
const target = fc.integer({ min: 0, max: 1_000_000 });
const tier = fc.oneof(
  fc.record({ type: fc.constant('exclusive'), target }),
  fc.record({
    type: fc.constant('shared'),
    target,
    max_concurrent: fc.integer({ min: 1, max: 10_000 }),
  }),
);
const tierInput = fc
  .uniqueArray(fc.tuple(name, tier), { selector: ([key]) => key, minLength: 1, maxLength: 12 })
  .chain((entries) =>
    fc.record({
      tiers: fc.constant(Object.fromEntries(entries)),
      default_chain: fc.shuffledSubarray(entries.map(([key]) => key)),
    }),
  );

describe('serialising', () => {
  it('gives the canonical form', () => {
    expect(serializeTierConfig(parsed({ default_chain: ['gold', 'basic'], tiers: envelope.tiers }))).toBe(
      '{"tiers":{"basic":{"type":"shared","target":1,"max_concurrent":3},"gold":{"type":"exclusive","target":1}},"default_chain":["gold","basic"]}',
    );
  });

  it('reads the text that it wrote', () => {
    fc.assert(
      fc.property(tierInput, (input) => {
        const config = parsed(input);
        const text = serializeTierConfig(config);
        const again = parseTierConfigJson(text);
        expect(again.warnings).toEqual([]);
        expect(again.config).toEqual(config);
        expect(again.config && serializeTierConfig(again.config)).toBe(text);
      }),
    );
  });

  it('gives equal text for equal configurations in any order', () => {
    const reversed = Object.fromEntries(Object.entries(envelope.tiers).reverse());
    expect(serializeTierConfig(parsed({ ...envelope, tiers: reversed }))).toBe(
      serializeTierConfig(parsed(envelope)),
    );
  });
});

describe('pools', () => {
  const config = parsed({
    tiers: { basic: { type: 'shared' }, acme: { target: 3 }, extra: { type: 'shared' }, gold: {}, abc: {} },
    default_chain: ['gold', 'basic'],
  });

  it('makes an exclusive tier outside the chain a merchant pool, chain order first, the rest by name', () => {
    expect(poolsOf(config).map(({ id }) => id)).toEqual([
      'pool:gold',
      'pool:basic',
      'merchant:abc',
      'merchant:acme',
      'pool:extra',
    ]);
    expect(poolsOf(config)[3]).toEqual({
      id: 'merchant:acme',
      kind: 'exclusive',
      maxConcurrent: 1,
      target: 3,
      tier: 'acme',
    });
  });

  it('finds the pool of a tier', () => {
    expect(poolOfTier(config, 'acme')).toBe('merchant:acme');
    expect(poolOfTier(config, 'extra')).toBe('pool:extra');
    expect(poolOfTier(config, 'nope')).toBeUndefined();
  });

  it('gives every tier exactly one pool', () => {
    fc.assert(
      fc.property(tierInput, (input) => {
        const any = parsed(input);
        const specs = poolsOf(any);
        expect(specs.map((spec) => spec.tier).sort()).toEqual(Object.keys(any.tiers).sort());
        for (const spec of specs) expect(poolOfTier(any, spec.tier)).toBe(spec.id);
      }),
    );
  });

  it.each<[PoolId, string]>([
    ['pool:gold', 'gold'],
    ['merchant:acme', 'merchant:acme'],
    ['pool:pool', 'pool'],
  ])('writes %s as %s beside the pod', (pool, text) => {
    expect(tierNameOf(pool)).toBe(text);
  });
});

describe('names', () => {
  it('accepts and refuses names of tiers and merchants', () => {
    for (const good of ['a', 'A_b.c-9', 'x'.repeat(64)]) expect(isName(good)).toBe(true);
    for (const bad of ['', 'x'.repeat(65), 'a b', 'a:b', 'a\n', 'é', 1, null])
      expect(isName(bad)).toBe(false);
  });

  it('accepts and refuses pod names', () => {
    for (const good of ['a', 'voice-agent-0', 'a.b-c.d', '0', 'x'.repeat(253), 'metadata2']) {
      expect(isPodName(good)).toBe(true);
    }
    const bad = [
      '',
      'metadata',
      'A',
      '-a',
      'a-',
      'a..b',
      '.a',
      'a.',
      'a_b',
      'x'.repeat(254),
      'a\n',
      'a:b',
      7,
    ];
    for (const name of bad) expect(isPodName(name)).toBe(false);
  });

  it('accepts and refuses call SIDs', () => {
    for (const good of ['CA1', ' ', 'x'.repeat(256), '😀'.repeat(256), 'a:b/{c}']) {
      expect(callSidProblem(good)).toBeUndefined();
    }
    for (const bad of [
      '',
      'x'.repeat(257),
      '😀'.repeat(257),
      'a\0',
      '\n',
      '\x7f',
      '\x80',
      '\x9f',
      '\ud800',
    ]) {
      expect(callSidProblem(bad)).toMatch(/^call_sid must /);
    }
    expect(callSidProblem(12, 'CallSid')).toBe('CallSid must be a string, got 12');
  });
});
