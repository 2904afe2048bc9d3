/** The file of `merchants export` and `merchants import`: `{"merchants": {"acme": {"tier": "gold"}}}`. */
import { isDeepStrictEqual } from 'node:util';
import { type MerchantConfig, parseMerchantConfig } from '../calls/chain.js';
import { isName, isPlainObject, showValue } from '../config/tiers.js';
import type { Merchant } from './answers.js';
import { Failure } from './failure.js';
import { clean } from './table.js';

export type Configurations = Record<string, MerchantConfig>;

export interface Change {
  readonly merchant_id: string;
  readonly change: 'added' | 'changed' | 'unchanged';
  /** Null for one that is added. */
  readonly before: MerchantConfig | null;
  readonly after: MerchantConfig;
}

/** What was configured, without what the router computes from it. */
export function configurations(merchants: readonly Merchant[]): Configurations {
  const entries = merchants.map(({ merchant_id, chain: _, skipped: __, ...config }) => [merchant_id, config]);
  return Object.fromEntries(entries) as Configurations;
}

/** Checks everything, and throws with all problems at once. */
export function readConfigurations(value: unknown, from: string): Configurations {
  const merchants = isPlainObject(value) ? value.merchants : undefined;
  if (!isPlainObject(merchants)) {
    throw new Failure(
      'usage',
      `${from} must be what \`merchants export\` writes: {"merchants": {"ID": {"tier": ..., "pool": ..., "fallback": ...}}}`,
    );
  }
  const problems: string[] = [];
  const read = Object.entries(merchants).flatMap(([id, input]) => {
    if (!isName(id)) {
      problems.push(`${showValue(id)}: an id has 1 to 64 of A-Z a-z 0-9 _ . -`);
      return [];
    }
    const { config, problems: found } = parseMerchantConfig(input, id);
    problems.push(...found);
    return config ? [[id, config] as const] : [];
  });
  if (problems.length > 0) {
    throw new Failure('usage', `${from} is wrong, and nothing was changed:`, problems.map(clean));
  }
  return Object.fromEntries(read);
}

export function changesOf(before: Configurations, after: Configurations): Change[] {
  return Object.entries(after).map(([merchant_id, config]) => {
    const old = Object.hasOwn(before, merchant_id) ? (before[merchant_id] ?? null) : null;
    const isSame = isDeepStrictEqual(old, config);
    const change = old === null ? 'added' : isSame ? 'unchanged' : 'changed';
    return { merchant_id, change, before: old, after: config };
  });
}
