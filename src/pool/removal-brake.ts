/**
 * The removal brake. A wrong label selector, a half-restored API server or a typo in STATIC_PODS looks exactly like a
 * cluster that lost its pods; to act on it would cut every call. So a list that would remove more than half of the pods,
 * and more than three, removes none. They are held (no new calls, running calls continue) until three lists in a row miss
 * them, an operator confirms the removal, or a lookup by name does (reconciler.ts). Lists in quick succession count as
 * one: they show the same moment. With a static list the reconciler also passes pods with live calls as held, however
 * few: replicas may have different lists.
 */
const maxUnbraked = 3;
/** Lists in a row that must agree. */
export const listsToConfirm = 3;

export interface Removals {
  remove: string[];
  hold: string[];
}

export class RemovalBrake {
  /** Held pods, and how many lists in a row have missed each. */
  #missed = new Map<string, number>();

  /**
   * Decides on `missing`, the pods that a list did not have, out of `known`. A held pod, by an earlier list or an earlier
   * leader (`held`), stays held even if so many others are listed again that the rest alone would not be braked.
   * `counts` is false for a list right after another.
   */
  decide(
    missing: readonly string[],
    known: number,
    confirmed: ReadonlySet<string>,
    { held = new Set<string>(), counts = true }: { held?: ReadonlySet<string>; counts?: boolean } = {},
  ): Removals {
    const isBraked = missing.length > maxUnbraked && missing.length > known / 2;
    const removals: Removals = { remove: [], hold: [] };
    const missed = new Map<string, number>();
    for (const pod of missing) {
      const before = this.#missed.get(pod) ?? 0;
      const times = counts || before === 0 ? before + 1 : before;
      if ((!isBraked && before === 0 && !held.has(pod)) || confirmed.has(pod) || times >= listsToConfirm) {
        removals.remove.push(pod);
      } else {
        missed.set(pod, times);
        removals.hold.push(pod);
      }
    }
    this.#missed = missed;
    return removals;
  }
}
