/** Labels for the codes of the router. */
import { expect, it } from 'vitest';
import { inChainOrder, stateOf, stateText } from '../../console/src/labels.js';
import type { Pod } from '../../console/src/types.js';

const podThatIs = (blocked_by: string | null): Pod => ({
  pod_name: 'gold-1',
  tier: 'gold',
  draining_until: null,
  blocked_by,
  leases: [],
  last_report_at: null,
  uid: '',
  started_at: null,
});

it('shows a pod with an unreadable key as blocked, with the reason', () => {
  const pod = podThatIs('unreadable');
  expect(stateOf(pod)).toBe('blocked');
  expect(stateText(pod)).toBe('Unreadable key');
});

it('shows an unknown reason as it is', () => {
  expect(stateText(podThatIs('not_yet_known'))).toBe('not yet known');
});

it('sorts tiers in chain order, the others last', () => {
  const names = ['basic', 'extra-10', 'extra-9', 'gold', 'standard'];
  expect(inChainOrder(names, ['gold', 'pool:standard', 'basic'])).toEqual([
    'gold',
    'standard',
    'basic',
    'extra-9',
    'extra-10',
  ]);
});
