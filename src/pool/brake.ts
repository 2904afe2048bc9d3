/**
 * The removal brake. A wrong label selector, a half-restored API server or a typo in STATIC_PODS looks exactly like
 * a cluster that lost its pods; acting on it would cut every call. So a list that would remove more than half of the
 * pods, and more than three, removes none: they are held (no new calls, running ones go on) until three lists in a row
 * have missed them, an operator says that they are gone, or a lookup by name confirms it (reconciler.ts). Lists made in quick succession (a watch that fell behind, a
 * store that came back) are one: they see the same moment. With a static list the reconciler also passes pods with live
 * calls as held, however few: replicas may have different lists.
 */
const mostWithoutBrake = 3;
export const listsToBelieve = 3;

export interface Verdict {
  remove: string[];
  hold: string[];
}

export class RemovalBrake {
  /** Held pods, and how many lists in a row have missed each. */
  #missed = new Map<string, number>();

  /**
   * `missing`: known pods that a list did not have, out of `known`. A pod that is on hold, by an earlier list or by an
   * earlier leader (`held`), stays there even if so many others came back that the rest alone would not have pulled
   * the brake. `counts` is false for a list that came right after another.
   */
  judge(
    missing: readonly string[],
    known: number,
    confirmed: ReadonlySet<string>,
    { held = new Set<string>(), counts = true }: { held?: ReadonlySet<string>; counts?: boolean } = {},
  ): Verdict {
    const isBraked = missing.length > mostWithoutBrake && missing.length > known / 2;
    const verdict: Verdict = { remove: [], hold: [] };
    const missed = new Map<string, number>();
    for (const pod of missing) {
      const before = this.#missed.get(pod) ?? 0;
      const times = counts || before === 0 ? before + 1 : before;
      if ((!isBraked && before === 0 && !held.has(pod)) || confirmed.has(pod) || times >= listsToBelieve) {
        verdict.remove.push(pod);
      } else {
        missed.set(pod, times);
        verdict.hold.push(pod);
      }
    }
    this.#missed = missed;
    return verdict;
  }
}
