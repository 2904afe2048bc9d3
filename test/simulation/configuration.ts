/** The tiers and merchants that operators choose from, and who calls for whom. */

/** The first is what the routers are started with. The merchant pool of `vip` comes from its tier outside the chain. */
const gold = { type: 'exclusive', target: 3 };
const vip = { type: 'exclusive', target: 1 };
const basic = (max_concurrent: number) => ({ type: 'shared', target: 2, max_concurrent });
/** In all but one variant calls may wait. */
const hold = { max_wait: '40s', max_waiting: 30 };
export const tierVariants = [
  { tiers: { gold, basic: basic(3), vip }, default_chain: ['gold', 'basic'], hold },
  // Limits, up and down.
  { tiers: { gold, basic: basic(2), vip }, default_chain: ['gold', 'basic'], hold },
  { tiers: { gold, basic: basic(4), vip }, default_chain: ['basic', 'gold'], hold },
  // A tier more, a tier less, and one that comes into the chain.
  { tiers: { gold, basic: basic(3), vip, silver: vip }, default_chain: ['gold', 'silver', 'basic'], hold },
  { tiers: { basic: basic(3), vip }, default_chain: ['basic'], hold },
  { tiers: { gold, basic: basic(3), vip }, default_chain: ['gold', 'vip', 'basic'] },
];
/** Of all variants that may be chosen: which one holds when a call is given, its caller cannot know. The audit does. */
export function maxCallsPerPod(pool: string, doTiersChange: boolean): number {
  if (pool !== 'pool:basic') return 1;
  return doTiersChange ? 4 : 3;
}

export const merchantVariants = [
  { pool: 'vip', fallback: ['gold', 'basic'] },
  { pool: 'vip' },
  { fallback: ['merchant:vip', 'basic'] },
  { tier: 'basic' },
  { tier: 'gold', priority: 5, weight: 3, max_calls: 1 },
  { pool: 'vip', max_calls: 2, hold: { max_wait: '15s', max_waiting: 3 } },
];
export const merchantIds = ['', '', 'acme', 'zenith', 'unknown'] as const;
