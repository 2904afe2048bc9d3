/** How merchants are shown. */

import { type Cell, facts, table } from '../terminal/table.js';
import type { Paint } from '../terminal/text.js';
import { clean } from '../terminal/text.js';
import type { Merchant } from './answers.js';

export function showMerchants(merchants: readonly Merchant[], paint: Paint): string {
  const rows = merchants.map(({ merchant_id, tier, pool, fallback, chain }): Cell[] => [
    merchant_id,
    tier ?? '-',
    pool ?? '-',
    fallback?.join(',') || '-',
    chain.join(' > '),
  ]);
  const columns = ['MERCHANT', 'TIER', 'POOL', 'FALLBACK', 'CHAIN OF ITS CALLS'].map((head) => ({ head }));
  return table(columns, rows, paint);
}

export function showMerchant({ merchant_id, tier, pool, fallback, chain }: Merchant, paint: Paint): string {
  return facts(
    [
      ['merchant', merchant_id],
      ['tier', tier ?? '-'],
      ['pool', pool ?? '-'],
      ['fallback', fallback?.join(', ') || '-'],
      ['chain', chain.join(' > ')],
    ],
    paint,
  );
}

/** Steps that name nothing known: the call still gets a pod, but not by them. */
export function skippedSteps({ merchant_id, skipped }: Merchant): string[] {
  return skipped.map(({ step, reason }) => clean(`${merchant_id}: ${step} is skipped: ${reason}`));
}
