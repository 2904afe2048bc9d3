/**
 * Tiers: the pools, how many pods each should have, and the order in which a call tries them.
 *
 * Guarantee: the parsers never throw, for any text (environment, API body, store). They return either a configuration
 * within every limit below, or all problems at once, each naming its field.
 *
 * The three accepted forms overlap if a tier is called `tiers` or `default_chain`, so the form is chosen by shape first
 * (see `formOf`), and messages are about that form.
 *
 * Weakness: JSON keeps the last of two equal keys, so a tier written twice is not noticed.
 */

import { type Hold, readHold } from './hold.js';

export interface Tier {
  readonly type: 'exclusive' | 'shared';
  /** Pods this tier should have; used for tier assignment only. */
  readonly target: number;
  /** Calls one pod serves at once; 1 for exclusive. */
  readonly maxConcurrent: number;
}

export interface TierConfig {
  /** Without a prototype: `constructor` and `__proto__` are ordinary names. */
  readonly tiers: Readonly<Record<string, Tier>>;
  readonly defaultChain: readonly string[];
  /** Calls wait for a pod by these rules; without them a call without a pod is refused. */
  readonly hold?: Hold;
}

export type PoolId = `pool:${string}` | `merchant:${string}`;

export interface PoolSpec {
  readonly id: PoolId;
  readonly kind: 'exclusive' | 'shared';
  readonly maxConcurrent: number;
  readonly target: number;
  readonly tier: string;
}

export interface ParsedTierConfig {
  /** Present exactly when there are no problems. */
  config?: TierConfig;
  warnings: string[];
  problems: string[];
}

export const tierLimits = {
  targetMax: 1_000_000,
  maxConcurrentMax: 10_000,
  sharedMaxConcurrentDefault: 5,
  tiersMax: 200,
  /** Before unknown and repeated names are dropped. */
  chainStepsMax: 1_000,
  /** 200 tiers with the longest names take about 45,000 characters. */
  jsonCharsMax: 262_144,
  callSidCharsMax: 256,
} as const;

const targetRange = [0, tierLimits.targetMax] as const;
const namePattern = /^[A-Za-z0-9_.-]{1,64}$/;
const podNamePattern = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;
const nameRule = '1 to 64 of the characters A-Z a-z 0-9 _ . -';

/** Whether this is a valid tier name or merchant id. */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && namePattern.test(value);
}

/** `metadata` is rejected because `pod:metadata` is another key. */
export function isPodName(value: unknown): value is string {
  return (
    typeof value === 'string' && value.length <= 253 && value !== 'metadata' && podNamePattern.test(value)
  );
}

/** The problem with a call SID, or undefined. Counts code points, as JSON Schema does. */
export function callSidProblem(value: unknown, field = 'call_sid'): string | undefined {
  const max = tierLimits.callSidCharsMax;
  if (typeof value !== 'string') return `${field} must be a string, got ${showValue(value)}`;
  if (value === '') return `${field} must not be empty`;
  if (value.length > 2 * max || [...value].length > max)
    return `${field} must have at most ${max} characters`;
  if (/\p{Cc}/u.test(value)) return `${field} must not contain control characters`;
  // UTF-8 turns a lone surrogate into U+FFFD: two different calls would share one key.
  if (/\p{Cs}/u.test(value)) return `${field} must be valid Unicode`;
  return undefined;
}

/** A value for an error message: short, on one line, safe for any JSON. */
export function showValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'an object';
  if (typeof value === 'string') {
    return visible(JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}...` : value));
  }
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : `a ${typeof value}`;
}

/** Escapes characters that end a line or reverse the text direction, which JSON does not escape. */
export function visible(text: string): string {
  return text.replace(
    /[\p{Cc}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu,
    (odd) => `\\u${odd.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** The message of an error on one line: V8 quotes the text it could not parse, with its line breaks. */
export function messageOf(error: unknown): string {
  return visible((error instanceof Error ? error.message : String(error)).replace(/[\s\p{Cc}]+/gu, ' '));
}

export function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Names for a message, at most five: `"a", "b" and 7 more`. */
export function showNames(names: readonly string[]): string {
  const shown = names.slice(0, 5).map((name) => showValue(name));
  const more = names.length - shown.length;
  return more > 0 ? `${shown.join(', ')} and ${more} more` : shown.join(', ');
}

const byName = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

function makeConfig(
  entries: Iterable<readonly [string, Tier]>,
  chain: readonly string[],
  hold?: Hold,
): TierConfig {
  const tiers: Record<string, Tier> = Object.create(null);
  for (const [name, tier] of [...entries].sort(([a], [b]) => byName(a, b))) tiers[name] = Object.freeze(tier);
  return Object.freeze({
    tiers: Object.freeze(tiers),
    defaultChain: Object.freeze([...chain]),
    ...(hold ? { hold: Object.freeze(hold) } : {}),
  });
}

const exclusive = (target: number): Tier => ({ type: 'exclusive', target, maxConcurrent: 1 });

export const defaultTierConfig: TierConfig = makeConfig(
  [
    ['gold', exclusive(10)],
    ['standard', exclusive(20)],
    ['overflow', exclusive(5)],
  ],
  ['gold', 'standard', 'overflow'],
);

const tierKeys: readonly string[] = ['type', 'target', 'max_concurrent'];
const envelopeKeys: readonly string[] = ['tiers', 'default_chain', 'hold'];

function looksLikeTier(value: unknown): boolean {
  if (!isPlainObject(value)) return false;
  const keys = Object.keys(value);
  return (
    keys.length > 0 && keys.every((key) => tierKeys.includes(key) && !isPlainObject(Reflect.get(value, key)))
  );
}

/**
 * Form 1 (`envelope`): there is a `tiers` that is neither a number nor a single tier, or a `default_chain`
 * that is a list. Form 2 (`map`): some value is an object. Form 3 (`targets`): the rest.
 * `{"tiers": {}}` is an empty envelope, not a tier called `tiers`.
 */
function formOf(input: Record<string, unknown>): 'envelope' | 'map' | 'targets' {
  if (Object.hasOwn(input, 'default_chain') && Array.isArray(input.default_chain)) return 'envelope';
  if (Object.hasOwn(input, 'tiers') && typeof input.tiers !== 'number' && !looksLikeTier(input.tiers)) {
    return 'envelope';
  }
  return Object.values(input).some(isPlainObject) ? 'map' : 'targets';
}

/** Gets each problem that a parser finds. */
export type Problem = (text: string) => void;

function isWholeNumber(value: unknown, [min, max]: readonly [number, number]): value is number {
  return Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
}

/** After a problem the result is not used. */
export function readWholeNumber(
  path: string,
  value: unknown,
  range: readonly [number, number],
  problem: Problem,
): number {
  if (!isWholeNumber(value, range))
    problem(`${path} must be a whole number from ${range[0]} to ${range[1]}, got ${showValue(value)}`);
  // `+ 0` turns the -0 that JSON can carry into 0.
  return (value as number) + 0;
}

/** Reads one tier. After a problem the result is not used. */
function readTier(path: string, input: Record<string, unknown>, problem: Problem): Tier {
  const { maxConcurrentMax, sharedMaxConcurrentDefault } = tierLimits;
  const unknown = Object.keys(input).filter((key) => !tierKeys.includes(key));
  if (unknown.length > 0) {
    problem(`${path} has unknown keys: ${showNames(unknown)}; known are type, target, max_concurrent`);
  }
  const type = Object.hasOwn(input, 'type') ? input.type : 'exclusive';
  if (type !== 'exclusive' && type !== 'shared') {
    problem(`${path}.type must be "exclusive" or "shared", got ${showValue(type)}`);
  }
  const given = Object.hasOwn(input, 'target') ? input.target : 0;
  const target = readWholeNumber(`${path}.target`, given, targetRange, problem);
  const fallback = type === 'shared' ? sharedMaxConcurrentDefault : 1;
  const maxConcurrent = Object.hasOwn(input, 'max_concurrent') ? input.max_concurrent : fallback;
  if (type === 'exclusive' && maxConcurrent !== 1) {
    problem(
      `${path}.max_concurrent must be 1 or absent, got ${showValue(maxConcurrent)}: ` +
        'an exclusive pod serves one call; use type "shared" for more',
    );
  } else readWholeNumber(`${path}.max_concurrent`, maxConcurrent, [1, maxConcurrentMax], problem);
  return { type: type as Tier['type'], target, maxConcurrent: maxConcurrent as number };
}

function readTargets(input: Record<string, unknown>, problem: Problem): [string, Tier][] {
  return Object.entries(input).map(([name, target]) => [
    name,
    exclusive(readWholeNumber(name, target, targetRange, problem)),
  ]);
}

function readMap(prefix: string, input: Record<string, unknown>, problem: Problem): [string, Tier][] {
  const tiers: [string, Tier][] = [];
  for (const [name, value] of Object.entries(input)) {
    const path = `${prefix}${name}`;
    if (isPlainObject(value)) tiers.push([name, readTier(path, value, problem)]);
    else if (isWholeNumber(value, targetRange)) {
      problem(
        `${path} must be an object like {"target":${value}}, got ${value}: numbers alone are accepted only when every tier is one`,
      );
    } else problem(`${path} must be an object with type, target, max_concurrent, got ${showValue(value)}`);
  }
  return tiers;
}

function builtChain(tiers: readonly (readonly [string, Tier])[]): string[] {
  const ofType = (type: Tier['type']) => tiers.filter(([, tier]) => tier.type === type).map(([name]) => name);
  return [...ofType('exclusive').sort(byName), ...ofType('shared').sort(byName)];
}

/** The chain without unknown and repeated names; empty: build one from all tiers. */
function readChain(
  input: unknown,
  known: ReadonlySet<string>,
  report: { problem(text: string): void; warn(text: string): void },
): string[] {
  // The Go router writes null for a missing chain.
  if (input === undefined || input === null) return [];
  if (!Array.isArray(input)) {
    report.problem(`default_chain must be a list of tier names, got ${showValue(input)}`);
    return [];
  }
  if (input.length > tierLimits.chainStepsMax) {
    report.problem(
      `default_chain must have at most ${tierLimits.chainStepsMax} entries, got ${input.length}`,
    );
    return [];
  }
  const chain = new Set<string>();
  for (const [index, step] of input.entries()) {
    const path = `default_chain[${index}]`;
    if (typeof step !== 'string') report.problem(`${path} must be a tier name, got ${showValue(step)}`);
    else if (!known.has(step)) report.warn(`${path} names no tier: ${showValue(step)} is dropped`);
    else if (chain.has(step)) report.warn(`${path} repeats ${showValue(step)}: only the first one counts`);
    else chain.add(step);
  }
  if (chain.size === 0) {
    report.warn('default_chain names no tier: built from all tiers, exclusive ones first, each by name');
  }
  return [...chain];
}

/** Reads parsed JSON as a tier configuration in any of the three forms. Never throws. Messages start with `prefix`. */
export function parseTierConfig(input: unknown, prefix = ''): ParsedTierConfig {
  const warnings: string[] = [];
  const problems: string[] = [];
  const problem = (text: string) => void problems.push(prefix + text);
  const warn = (text: string) => void warnings.push(prefix + text);
  const refused = () => ({ warnings, problems });

  if (!isPlainObject(input)) {
    problem(`must be a JSON object like {"gold":10,"standard":20}, got ${showValue(input)}`);
    return refused();
  }
  const form = formOf(input);
  let map: unknown = input;
  if (form === 'envelope') {
    map = Object.hasOwn(input, 'tiers') ? input.tiers : undefined;
    const unknown = Object.keys(input).filter((key) => !envelopeKeys.includes(key));
    if (unknown.length > 0) {
      problem(
        `unknown keys beside tiers, default_chain and hold: ${showNames(unknown)}; tiers go inside "tiers"`,
      );
    }
  }
  if (form !== 'envelope' && isPlainObject(input.hold) && Object.hasOwn(input.hold, 'max_wait')) {
    problem('hold stands beside "tiers": {"tiers":{...},"hold":{...}}');
    return refused();
  }
  const parent = form === 'envelope' ? 'tiers' : '';
  if (!isPlainObject(map)) {
    problem(`tiers must be an object of tier name to tier, got ${showValue(map)}`);
    return refused();
  }
  const names = Object.keys(map);
  if (names.length === 0) problem(`${parent && `${parent} `}must name at least one tier`);
  if (names.length > tierLimits.tiersMax) {
    problem(
      `${parent && `${parent} `}must name at most ${tierLimits.tiersMax} tiers, found ${names.length} names`,
    );
    return refused();
  }
  const badNames = names.filter((name) => !isName(name));
  if (badNames.length > 0) problem(`not a tier name: ${showNames(badNames)}; use ${nameRule}`);

  const named = Object.fromEntries(Object.entries(map).filter(([name]) => isName(name)));
  const tiers =
    form === 'targets' ? readTargets(named, problem) : readMap(parent && 'tiers.', named, problem);
  const written =
    form === 'envelope' ? readChain(input.default_chain, new Set(names), { problem, warn }) : [];

  const hold =
    form === 'envelope' && input.hold !== undefined ? readHold(input.hold, 'hold', problem) : undefined;

  if (problems.length > 0) return refused();
  const chain = written.length > 0 ? written : builtChain(tiers);
  return { config: makeConfig(tiers, chain, hold), warnings, problems };
}

/** Reads a tier configuration from text. Never throws. */
export function parseTierConfigJson(text: string, prefix = ''): ParsedTierConfig {
  const refused = (problem: string) => ({ warnings: [], problems: [prefix + problem] });
  if (text.length > tierLimits.jsonCharsMax) {
    return refused(`must have at most ${tierLimits.jsonCharsMax} characters, got ${text.length}`);
  }
  let input: unknown;
  try {
    input = JSON.parse(text);
  } catch (error) {
    return refused(`is not valid JSON: ${messageOf(error)}`);
  }
  return parseTierConfig(input, prefix);
}

/** Form 1 without `hold`, keys sorted, without spaces: equal configurations give equal text. */
export function serializeTierConfig(config: TierConfig): string {
  const tiers: Record<string, unknown> = Object.create(null);
  for (const [name, tier] of Object.entries(config.tiers).sort(([a], [b]) => byName(a, b))) {
    const { type, target, maxConcurrent } = tier;
    tiers[name] = type === 'shared' ? { type, target, max_concurrent: maxConcurrent } : { type, target };
  }
  return JSON.stringify({ tiers, default_chain: config.defaultChain });
}

/** An exclusive tier outside the default chain is a merchant pool of that name; all others are plain pools. */
export function poolOfTier(config: TierConfig, name: string): PoolId | undefined {
  if (!Object.hasOwn(config.tiers, name)) return undefined;
  const merchant = config.tiers[name]?.type === 'exclusive' && !config.defaultChain.includes(name);
  return merchant ? `merchant:${name}` : `pool:${name}`;
}

/** Every pool of the configuration: in chain order, then the others by name. */
export function poolsOf(config: TierConfig): PoolSpec[] {
  const rest = Object.keys(config.tiers).filter((name) => !config.defaultChain.includes(name));
  const specs: PoolSpec[] = [];
  for (const name of [...config.defaultChain, ...rest.sort(byName)]) {
    const id = poolOfTier(config, name);
    const tier = config.tiers[name];
    if (!id || !tier) continue;
    specs.push({ id, kind: tier.type, maxConcurrent: tier.maxConcurrent, target: tier.target, tier: name });
  }
  return specs;
}

/** The value of the key `pod:tier:{pod}`: `gold` for `pool:gold`, `merchant:acme` unchanged. */
export function tierNameOf(pool: PoolId): string {
  return pool.startsWith('pool:') ? pool.slice('pool:'.length) : pool;
}
