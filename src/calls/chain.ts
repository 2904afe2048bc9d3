/**
 * The chain: the pools that a call of a merchant tries, in order.
 *
 * Guarantee: resolving never fails, and the result is never empty if the tier configuration has a chain. A mistake in a
 * merchant's entry must not reject its calls:
 *
 * - an unknown step is skipped, with the reason in `skipped`;
 * - a `fallback` without a usable step counts as not set: `tier` or the default chain decides. To keep a merchant on its own
 *   pods only, name a pool that exists: `["merchant:acme"]`;
 * - a malformed stored entry counts as empty.
 *
 * Weakness: a merchant limited to its own pool uses the default chain while that pool does not exist.
 */
import { type CallLimits, callLimitKeys, readCallLimits } from '../config/hold.js';
import {
  isName,
  isPlainObject,
  messageOf,
  type PoolId,
  poolOfTier,
  showNames,
  showValue,
  type TierConfig,
} from '../config/tiers.js';

export interface MerchantConfig extends CallLimits {
  /** Starts the default chain at this tier. */
  readonly tier?: string;
  /** Tries `merchant:{pool}` first. */
  readonly pool?: string;
  /** Tier names or `merchant:{id}`, instead of the default chain. */
  readonly fallback?: readonly string[];
}

export interface Chain {
  steps: PoolId[];
  skipped: { step: string; reason: string }[];
}

export const fallbackStepsMax = 32;
const storedCharsMax = 65_536;
const merchantKeys: readonly string[] = ['tier', 'pool', 'fallback', ...callLimitKeys];
const merchantPrefix = 'merchant:';

const isStep = (step: unknown): step is string =>
  isName(step) ||
  (typeof step === 'string' && step.startsWith(merchantPrefix) && isName(step.slice(merchantPrefix.length)));

function fieldsOf(input: Record<string, unknown>, problem: (text: string) => void): MerchantConfig {
  const config: { tier?: string; pool?: string; fallback?: string[] } & CallLimits = readCallLimits(
    input,
    problem,
  );
  for (const key of ['tier', 'pool'] as const) {
    if (!Object.hasOwn(input, key) || input[key] === undefined) continue;
    const value = input[key];
    if (isName(value)) config[key] = value;
    else {
      const noun = key === 'tier' ? 'a tier name' : 'a merchant pool without "merchant:" in front';
      problem(`${key} must be ${noun} (1 to 64 of A-Z a-z 0-9 _ . -), got ${showValue(value)}`);
    }
  }
  const fallback = Object.hasOwn(input, 'fallback') ? input.fallback : undefined;
  if (fallback === undefined) return config;
  if (!Array.isArray(fallback)) {
    problem(`fallback must be a list of tier names or merchant:{id}, got ${showValue(fallback)}`);
  } else if (fallback.length > fallbackStepsMax) {
    problem(`fallback must have at most ${fallbackStepsMax} steps, got ${fallback.length}`);
  } else {
    for (const [index, step] of fallback.entries()) {
      if (isStep(step)) continue;
      problem(`fallback[${index}] must be a tier name or merchant:{id}, got ${showValue(step)}`);
    }
    config.fallback = [...fallback];
  }
  return config;
}

/** For the API: strict, with all problems at once. `resolveChain` checks whether the tiers exist. */
export function parseMerchantConfig(
  input: unknown,
  field = 'merchant',
): { config?: MerchantConfig; problems: string[] } {
  const problems: string[] = [];
  const problem = (text: string) => void problems.push(`${field}: ${text}`);
  if (!isPlainObject(input)) {
    problem(`must be an object with ${merchantKeys.join(', ')} (each optional), got ${showValue(input)}`);
    return { problems };
  }
  const unknown = Object.keys(input).filter((key) => !merchantKeys.includes(key));
  if (unknown.length > 0)
    problem(`unknown keys: ${showNames(unknown)}; known are ${merchantKeys.join(', ')}`);
  const config = fieldsOf(input, problem);
  return problems.length > 0 ? { problems } : { config, problems };
}

/**
 * For an entry of the store: a malformed one gives an empty configuration and the reason. Unknown keys are ignored (a newer
 * replica may have written them), and null or "" means not set, as the Go router writes it.
 */
export function parseStoredMerchant(json: string): { config: MerchantConfig; problem?: string } {
  if (json.length > storedCharsMax) return { config: {}, problem: `more than ${storedCharsMax} characters` };
  let input: unknown;
  try {
    input = JSON.parse(json);
  } catch (error) {
    return { config: {}, problem: `not valid JSON: ${messageOf(error)}` };
  }
  if (!isPlainObject(input)) return { config: {}, problem: `must be an object, got ${showValue(input)}` };
  const given = Object.entries(input).filter(([, value]) => value !== null && value !== '');
  const problems: string[] = [];
  const config = fieldsOf(Object.fromEntries(given), (text) => problems.push(text));
  return problems.length > 0 ? { config: {}, problem: problems.join('; ') } : { config };
}

/**
 * The pools to try, each once, in order. `knownMerchantPools` has the merchant ids with a pool created by a pod's label;
 * without it every `merchant:{id}` is accepted.
 */
export function resolveChain(
  tiers: TierConfig,
  merchant: MerchantConfig = {},
  knownMerchantPools?: ReadonlySet<string>,
): Chain {
  const skipped: Chain['skipped'] = [];

  const poolOf = (step: string): PoolId | undefined => {
    if (!step.startsWith(merchantPrefix)) {
      const pool = poolOfTier(tiers, step);
      if (!pool) skipped.push({ step, reason: 'no such tier' });
      return pool;
    }
    const id = step.slice(merchantPrefix.length);
    if (!isName(id)) {
      skipped.push({ step, reason: 'not a merchant id' });
      return undefined;
    }
    const pool: PoolId = `merchant:${id}`;
    if (!knownMerchantPools || knownMerchantPools.has(id) || poolOfTier(tiers, id) === pool) return pool;
    skipped.push({ step, reason: 'no such merchant pool' });
    return undefined;
  };
  const poolsFor = (steps: readonly string[]) => steps.map(poolOf).filter((pool) => pool !== undefined);

  const own = merchant.pool === undefined ? [] : poolsFor([merchantPrefix + merchant.pool]);
  let rest = poolsFor(merchant.fallback ?? []);
  if (rest.length === 0) {
    const start = merchant.tier === undefined ? 0 : tiers.defaultChain.indexOf(merchant.tier);
    if (merchant.tier !== undefined && start < 0) {
      skipped.push({ step: merchant.tier, reason: 'tier is not in the default chain' });
    }
    rest = poolsFor(tiers.defaultChain.slice(Math.max(start, 0)));
  }
  return { steps: [...new Set([...own, ...rest])], skipped };
}
