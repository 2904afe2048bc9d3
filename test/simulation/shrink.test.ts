import { describe, expect, it } from 'vitest';
import { isDeep } from '../support/sets.js';
import { brokenRouters } from './broken-routers.js';
import type { Fault } from './faults.js';
import { fewest, shrink, sortOf } from './shrink.js';
import { faultsOf, simulate } from './simulate.js';

const fault = (kind: string): Fault => ({ kind, place: -1, atMs: 0, forMs: 0 });
const kindsOf = (faults: readonly Fault[]) => faults.map(({ kind }) => kind).join('');
const seed = 1;
const letters = [...'abcdefghijk'].map(fault);

describe('the smallest set of faults for a failure', () => {
  it('is found among all faults, at any position', async () => {
    const violation = async (faults: readonly Fault[]) =>
      ['b', 'g', 'k'].every((kind) => kindsOf(faults).includes(kind)) ? 'at 5 ms: call CA1' : undefined;
    expect(kindsOf(await fewest(letters, violation))).toBe('bgk');
  });

  it('breaks the same guarantee: a smaller set that breaks another one does not count', async () => {
    const violation = async (faults: readonly Fault[]) => {
      const kinds = kindsOf(faults);
      if (kinds.includes('c') && kinds.includes('h'))
        return `at ${faults.length} ms: two lead: router-${kinds.length}`;
      return kinds.includes('h') ? 'at 7 ms: agent-1 is free and cannot be had' : undefined;
    };
    expect(kindsOf(await fewest(letters, violation))).toBe('ch');
  });

  it('is not searched if nothing fails', async () => {
    await expect(fewest(letters, async () => undefined)).rejects.toThrow('does not fail');
  });

  it.each([
    ['at 12 ms: agent-5 was given to CA19 beside CA7, CA9', 'at 9 ms: agent-0 was given to CA1 beside CA2'],
    [
      'at 1 ms: two lead at once: router-0.12, router-2.9',
      'at 2 ms: two lead at once: router-1.3, router-0.4',
    ],
  ])('knows the same promise by its words: %s', (one, other) => {
    expect(sortOf(one)).toBe(sortOf(other));
    expect(sortOf(one)).not.toBe(sortOf('at 1 ms: 3 lead after everything was healed'));
  });

  it.runIf(isDeep)('is a small part of the faults of a seed [deep set only]', async () => {
    const broken = brokenRouters.find(({ broken }) => broken.startsWith('a store that does not answer'));
    if (!broken) throw new Error('there is no such control');
    const { rewire } = broken;
    const [first = ''] = (await simulate(seed, { rewire })).violations;
    const left = await shrink(seed, { rewire });
    expect(left.length).toBeLessThan(faultsOf(seed).length / 2);
    const [again = ''] = (await simulate(seed, { rewire, faults: left })).violations;
    expect(sortOf(again)).toBe(sortOf(first));
  });
});
