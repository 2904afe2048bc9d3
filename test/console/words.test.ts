/** Codes of the router in the words of the console. */
import { expect, it } from 'vitest';
import type { Pod } from '../../console/src/types.js';
import { inChainOrder, stateOf, stateText } from '../../console/src/words.js';

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

it('a pod with a key of a wrong type takes no calls, and says why', () => {
  const pod = podThatIs('unreadable');
  expect(stateOf(pod)).toBe('blocked');
  expect(stateText(pod)).toBe('A key of it cannot be read');
});

it('a reason that is newer than the console is shown as it is', () => {
  expect(stateText(podThatIs('not_yet_known'))).toBe('not yet known');
});

it('tiers stand as calls try them, and those of no chain come last', () => {
  const names = ['basic', 'extra-10', 'extra-9', 'gold', 'standard'];
  expect(inChainOrder(names, ['gold', 'pool:standard', 'basic'])).toEqual([
    'gold',
    'standard',
    'basic',
    'extra-9',
    'extra-10',
  ]);
});
