/** The removal brake: a list that would empty the pools is not believed at once. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RemovalBrake } from '../../src/pool/removal-brake.js';

const names = (count: number, from = 0) => Array.from({ length: count }, (_, i) => `pod-${from + i}`);
const none = new Set<string>();

describe('the removal brake', () => {
  it.each([
    { missing: 4, known: 4, isBraked: true, why: 'all pods are missing' },
    { missing: 4, known: 7, isBraked: true, why: 'four of seven are more than half' },
    { missing: 4, known: 8, isBraked: false, why: 'half is not more than half' },
    { missing: 5, known: 8, isBraked: true, why: 'five of eight are' },
    { missing: 3, known: 3, isBraked: false, why: 'three are not more than three' },
    { missing: 1, known: 1, isBraked: false, why: 'a small pool may lose its only pod' },
    { missing: 500, known: 1000, isBraked: false, why: 'half of many' },
    { missing: 501, known: 1000, isBraked: true, why: 'one more than half of many' },
  ])('$missing of $known missing: braked $isBraked, because $why', ({ missing, known, isBraked }) => {
    const decision = new RemovalBrake().decide(names(missing), known, none);
    expect(decision.hold).toHaveLength(isBraked ? missing : 0);
    expect(decision.remove).toHaveLength(isBraked ? 0 : missing);
  });

  it('removes pods that three lists in a row have missed', () => {
    const brake = new RemovalBrake();
    const gone = names(6);
    for (let list = 1; list <= 2; list += 1) {
      expect(brake.decide(gone, 6, none)).toEqual({ remove: [], hold: gone });
    }
    expect(brake.decide(gone, 6, none)).toEqual({ remove: gone, hold: [] });
  });

  it('lists in quick succession count once: they see the same moment', () => {
    const brake = new RemovalBrake();
    const gone = names(6);
    for (let list = 1; list <= 10; list += 1) {
      expect(brake.decide(gone, 6, none, { counts: list === 1 })).toEqual({ remove: [], hold: gone });
    }
    brake.decide(gone, 6, none);
    expect(brake.decide(gone, 6, none)).toEqual({ remove: gone, hold: [] });
  });

  it('a new leader keeps holding the pods that the old one held, for any number', () => {
    const brake = new RemovalBrake();
    const held = new Set(['pod-0']);
    for (let list = 1; list <= 2; list += 1) {
      expect(brake.decide(names(2), 9, none, { held })).toEqual({
        remove: ['pod-1'],
        hold: ['pod-0'],
      });
    }
    expect(brake.decide(['pod-0'], 9, none, { held })).toEqual({ remove: ['pod-0'], hold: [] });
  });

  it('counts the lists of each pod: one that joins the missing later waits for three of its own', () => {
    const brake = new RemovalBrake();
    brake.decide(names(5), 8, none);
    brake.decide(names(6), 8, none);
    expect(brake.decide(names(6), 8, none)).toEqual({ remove: names(5), hold: ['pod-5'] });
    expect(brake.decide(['pod-5'], 3, none)).toEqual({ remove: ['pod-5'], hold: [] });
  });

  it('a pod that is listed again is released, and counts from 0 when it is missed again', () => {
    const brake = new RemovalBrake();
    brake.decide(names(6), 6, none);
    brake.decide(names(6), 6, none);
    // pod-5 is listed again; the others are removed now.
    expect(brake.decide(names(5), 6, none)).toEqual({ remove: names(5), hold: [] });
    expect(brake.decide(['pod-5', ...names(5, 10)], 6, none)).toMatchObject({ remove: [] });
  });

  it('a held pod stays held although the others are listed again', () => {
    const brake = new RemovalBrake();
    brake.decide(names(6), 6, none);
    expect(brake.decide(names(2), 6, none)).toEqual({ remove: [], hold: names(2) });
    expect(brake.decide(names(2), 6, none)).toEqual({ remove: names(2), hold: [] });
  });

  it('an ordinary removal beside held pods is done', () => {
    const brake = new RemovalBrake();
    brake.decide(names(6), 6, none);
    expect(brake.decide(['pod-0', 'other'], 20, none)).toEqual({ remove: ['other'], hold: ['pod-0'] });
  });

  it('a confirmation removes the pods that it names, and no others', () => {
    const brake = new RemovalBrake();
    brake.decide(names(6), 6, none);
    const decision = brake.decide(names(6), 6, new Set(['pod-1', 'pod-4', 'unknown']));
    expect(decision.remove).toEqual(['pod-1', 'pod-4']);
    expect(decision.hold).toEqual(['pod-0', 'pod-2', 'pod-3', 'pod-5']);
  });

  it('for any lists: no pod is in both results, the first braked list removes nothing, no pod is held for more than three lists', () => {
    const lists = fc.array(fc.uniqueArray(fc.nat(11), { maxLength: 12 }), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(lists, (rounds) => {
        const brake = new RemovalBrake();
        const heldInARow = new Map<string, number>();
        for (const round of rounds) {
          const missing = round.map((n) => `pod-${n}`);
          const { remove, hold } = brake.decide(missing, 12, none);
          expect([...remove, ...hold].sort()).toEqual([...missing].sort());
          if (missing.length > 6) {
            for (const pod of remove) expect(heldInARow.get(pod)).toBe(2);
          }
          for (const pod of heldInARow.keys()) if (!hold.includes(pod)) heldInARow.delete(pod);
          for (const pod of hold) {
            const times = (heldInARow.get(pod) ?? 0) + 1;
            heldInARow.set(pod, times);
            expect(times).toBeLessThanOrEqual(2);
          }
        }
      }),
    );
  });
});
