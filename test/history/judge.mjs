// Judges the promises of docs/guarantees.md by what is certain (facts.mjs). Two certain facts that contradict a promise are a
// violation; what is only possible is none. Shares no code with src/.
import { entry, firstIndex, settledMs, toleranceMs } from './facts.mjs';

/**
 * @typedef {import('./facts.mjs').Facts} Facts
 * @typedef {import('./facts.mjs').Hold} Hold
 * @typedef {import('./facts.mjs').Call} Call
 * @typedef {{ promise: number, at: number, sid: string, other: string, pod: string, text: string, overlap_ms?: number }} Violation
 * @typedef {{ sid: string, pod: string, pool: string, arrivedFrom: number, arrivedBy: number, servedFrom: number, servedBy: number, isQueued: boolean }} Turn
 */

/** A change of configuration may be noted a little before or after it takes effect. */
const changeMs = 1000;
const never = Number.POSITIVE_INFINITY;
const ms = (/** @type {number} */ value) => `${Math.round(value)} ms`;

/** @param {Facts} facts */
export function judge(facts) {
  const judged = new Judge(facts);
  for (const oddity of facts.oddities) judged.say(oddity, oddity.at);
  for (const call of facts.calls.values()) judged.call(call);
  judged.pods();
  judged.limits();
  judged.drains();
  judged.fences();
  judged.order();
  const byTime = (/** @type {Violation} */ a, /** @type {Violation} */ b) => a.at - b.at;
  const doubles = [...judged.violations, ...judged.excused].filter(
    ({ promise, overlap_ms }) => promise !== 15 && overlap_ms !== undefined,
  );
  return {
    requests: facts.requests,
    lost_replies: facts.lostReplies,
    calls: facts.calls.size,
    holds: judged.holds.length,
    faults: facts.faults,
    violations: judged.violations.sort(byTime),
    excused: judged.excused.sort(byTime),
    double_allocations: doubles.length,
    longest_overlap_ms: doubles.reduce((most, { overlap_ms = 0 }) => Math.max(most, overlap_ms), 0),
    warnings: [...judged.warnings],
  };
}

class Judge {
  /** @type {Violation[]} */
  violations = [];
  /** @type {Violation[]} Writes that a fault may have lost explain them. */
  excused = [];
  /** @type {Set<string>} */
  warnings = new Set();

  /** @param {Facts} facts */
  constructor(facts) {
    this.facts = facts;
    this.holds = [...facts.calls.values()].flatMap(({ sorted }) => sorted);
    /** @type {Map<string, { at: number, limit: number }[]>} */
    this.poolLimits = new Map();
    /** @type {Map<string, { at: number, limit: number }[]>} */
    this.callLimits = new Map();
    for (const { at, pools = {}, merchants = {} } of [{ ...facts.setup, at: -never }, ...facts.changes]) {
      for (const [name, { kind, max }] of Object.entries(pools))
        entry(this.poolLimits, name, () => []).push({ at, limit: kind === 'exclusive' ? 1 : max });
      for (const [name, merchant] of Object.entries(merchants))
        entry(this.callLimits, name, () => []).push({ at, limit: merchant?.max_calls ?? never });
    }
  }

  /**
   * `relied`: when the acknowledged write that the violation relies on was last confirmed.
   * @param {Violation} violation
   * @param {number} relied
   */
  say(violation, relied) {
    const isLost = this.facts.losses.some(({ at, until }) => at <= violation.at && relied <= until);
    (isLost ? this.excused : this.violations).push(violation);
  }

  /** Promises 2, 5, 7 and 14: every reply about a call agrees with what it certainly held. @param {Call} call */
  call(call) {
    const { sid, sorted } = call;
    for (const denial of call.denials)
      for (const hold of covering(call, denial.at, denial.done)) {
        const isMeant = ['', hold.fence, `pod ${hold.pod}`].includes(denial.key);
        if (!isMeant) continue;
        const promise = denial.promise === 5 ? this.#blame(call, hold, denial.done, 5) : denial.promise;
        const text = `${sid} held ${hold.pod} (fence ${hold.fence}), and ${denial.how}`;
        this.say({ promise, at: denial.done, sid, other: '', pod: hold.pod, text }, hold.last);
      }
    for (const other of sorted)
      for (const hold of covering(call, other.firstAt, other.start)) {
        if (hold === other) continue;
        const promise = hold.pod === other.pod ? this.#blame(call, hold, other.start, 5) : 2;
        const text = `${sid} held ${hold.pod} (fence ${hold.fence}) and got ${other.pod} (fence ${other.fence})`;
        this.say(
          { promise, at: other.start, sid, other: sid, pod: other.pod, text },
          Math.min(hold.last, other.last),
        );
      }
    for (const { at, done, fence, isDone } of call.releases)
      for (const hold of isDone && fence !== undefined ? covering(call, at, done) : []) {
        if (hold.fence === fence) continue;
        const text = `${sid} held ${hold.pod} (fence ${hold.fence}), and a release with fence ${fence} was accepted`;
        this.say({ promise: 7, at: done, sid, other: '', pod: hold.pod, text }, hold.last);
      }
    for (const { from, to } of waitsOf(call))
      for (const hold of sorted) {
        if (hold.firstAt < from || hold.start > to) continue;
        const text = `${sid} got ${hold.pod} while it waited, before and after`;
        this.say({ promise: 14, at: hold.start, sid, other: '', pod: hold.pod, text }, from);
      }
  }

  /** A release with another fence in that time is the likely cause. @param {Call} call @param {Hold} hold @param {number} until @param {number} otherwise */
  #blame({ releases }, hold, until, otherwise) {
    const isStale = releases.some(
      ({ fence, at, done }) =>
        fence !== undefined && fence !== hold.fence && at <= until && done >= hold.start,
    );
    return isStale ? 7 : otherwise;
  }

  /** Promises 1 and 3. */
  pods() {
    const byPod = new Map();
    const pools = new Map();
    for (const [name, { pods = [] }] of Object.entries(this.facts.setup.pools))
      for (const pod of pods) pools.set(pod, name);
    for (const { pod, pool } of this.holds) if (pool !== '') pools.set(pod, pool);
    for (const hold of this.holds) {
      // A report does not name the pool.
      hold.pool ||= pools.get(hold.pod) ?? '';
      if (hold.pool !== '' && !this.poolLimits.has(hold.pool) && !hold.pool.startsWith('merchant:'))
        this.warnings.add(`pool ${hold.pool} is not in the setup: its pods are not judged`);
      entry(byPod, hold.pod, () => /** @type {Hold[]} */ ([])).push(hold);
    }
    for (const [pod, holds] of byPod)
      this.#exceeding(
        holds,
        (hold) => this.#poolLimit(hold),
        (hold, others, limit, overlap_ms) => {
          const other = /** @type {Hold} */ (others[0]);
          const otherwise = limit === 1 ? 1 : 3;
          const call = /** @type {Call} */ (this.facts.calls.get(other.sid));
          const text =
            limit === 1
              ? `${pod} was given to ${hold.sid} while ${other.sid} held it, for ${ms(overlap_ms)}`
              : `${pod} was given to ${hold.sid} as call ${others.length + 1} of at most ${limit}, for ${ms(overlap_ms)}`;
          return {
            ...{ promise: this.#blame(call, other, hold.start, otherwise), at: hold.start, sid: hold.sid },
            ...{ other: other.sid, pod, text, overlap_ms },
          };
        },
      );
  }

  /** Promise 15. */
  limits() {
    const byMerchant = new Map();
    for (const hold of this.holds) {
      const merchants = this.facts.calls.get(hold.sid)?.merchants;
      if (!hold.merchant || hold.isAdopted || merchants?.size !== 1 || !this.callLimits.has(hold.merchant))
        continue;
      entry(byMerchant, hold.merchant, () => /** @type {Hold[]} */ ([])).push(hold);
    }
    for (const [merchant, holds] of byMerchant) {
      const limits = this.callLimits.get(merchant) ?? [];
      if (limits.every(({ limit }) => limit === never)) continue;
      this.#exceeding(
        holds,
        (hold) => limitIn(limits, hold),
        (hold, others, limit, overlap_ms) => ({
          ...{ promise: 15, at: hold.start, sid: hold.sid, other: others[0]?.sid ?? '' },
          ...{ pod: hold.pod, overlap_ms },
          text: `${hold.sid} is live call ${others.length + 1} of ${merchant}, whose max_calls is ${limit}`,
        }),
      );
    }
  }

  /**
   * Finds holds that begin while as many as the limit allows are certain already.
   * @param {Hold[]} holds
   * @param {(hold: Hold) => number} limitOf
   * @param {(hold: Hold, others: Hold[], limit: number, overlapMs: number) => Violation} describe
   */
  #exceeding(holds, limitOf, describe) {
    /** @type {Hold[]} */
    let live = [];
    for (const hold of holds.toSorted((a, b) => a.start - b.start)) {
      live = live.filter(({ end }) => end > hold.start);
      // One that could have ended before its reply is certain at one moment, between its request and its reply.
      const isMoment = hold.end <= hold.start;
      const then = isMoment ? live.filter(({ start }) => start <= hold.firstAt) : live;
      // The last one of them to be created had to respect the limit of that moment.
      const all = [...then, hold];
      const lastFrom = Math.max(...all.map(({ from }) => from));
      const limit = Math.max(...all.filter(({ start }) => start >= lastFrom).map(limitOf));
      // Two holds of one call are judged by promise 2.
      const others = then.filter(({ sid }) => sid !== hold.sid).sort((a, b) => b.end - a.end);
      if (others.length >= limit) {
        const overlap = Math.min(hold.end, others[limit - 1]?.end ?? hold.end) - hold.start;
        const relied = Math.min(hold.last, ...others.map(({ last }) => last));
        this.say(describe(hold, others, limit, Math.max(0, overlap)), relied);
      }
      if (!isMoment) live.push(hold);
    }
  }

  /** @param {Hold} hold */
  #poolLimit(hold) {
    const limits = this.poolLimits.get(hold.pool);
    if (limits) return limitIn(limits, hold);
    return hold.pool.startsWith('merchant:') ? 1 : never;
  }

  /** Promise 6. */
  drains() {
    const byPod = new Map();
    for (const hold of this.holds)
      if (hold.isCreated) entry(byPod, hold.pod, () => /** @type {Hold[]} */ ([])).push(hold);
    for (const holds of byPod.values())
      holds.sort((/** @type {Hold} */ a, /** @type {Hold} */ b) => a.from - b.from);
    const said = new Set();
    for (const { pod, at, start, end } of this.facts.drains) {
      const holds = byPod.get(pod) ?? [];
      for (let i = firstIndex(holds, ({ from }) => from >= start); i < holds.length; i++) {
        const hold = /** @type {Hold} */ (holds[i]);
        if (hold.from > end) break;
        if (hold.createdDone > end || said.has(hold)) continue;
        said.add(hold);
        const text = `${pod} was given to ${hold.sid} ${ms(hold.createdDone - start)} after its drain was answered`;
        this.say({ promise: 6, at: hold.createdDone, sid: hold.sid, other: '', pod, text }, at);
      }
    }
  }

  /** Promise 7: no fence is used twice, and a later one is higher. */
  fences() {
    const seen = this.holds.toSorted((a, b) => a.start - b.start);
    const created = this.holds.filter(({ isCreated, isAdopted }) => isCreated || isAdopted);
    created.sort((a, b) => a.from - b.from);
    /** @type {Map<number, Hold>} */
    const owners = new Map();
    for (const hold of seen) {
      const owner = entry(owners, hold.fence, () => hold);
      if (owner === hold) continue;
      const text = `fence ${hold.fence} was given to ${owner.sid} and to ${hold.sid}`;
      this.say(
        { promise: 7, at: hold.start, sid: hold.sid, other: owner.sid, pod: hold.pod, text },
        owner.start,
      );
    }
    /** @type {Hold | undefined} */
    let highest;
    let next = 0;
    for (const hold of created) {
      for (; (seen[next]?.start ?? never) < hold.from; next++)
        if ((seen[next]?.fence ?? 0) > (highest?.fence ?? 0)) highest = seen[next];
      if (!highest || hold.fence > highest.fence || owners.get(hold.fence) !== hold) continue;
      const text = `fence ${hold.fence} of ${hold.sid} is lower than ${highest.fence} of ${highest.sid} before it`;
      this.say(
        { promise: 7, at: hold.start, sid: hold.sid, other: highest.sid, pod: hold.pod, text },
        highest.start,
      );
    }
  }

  /** Promises 12 and 13: no call is served before one that certainly waits, for longer or with a higher priority. */
  order() {
    /** @type {Map<string, { turns: Turn[], waiting: Turn[] }>} */
    const queues = new Map();
    for (const call of this.facts.calls.values()) {
      if (call.merchants.size !== 1) continue;
      const merchant = [...call.merchants][0] ?? '';
      const queue = entry(queues, merchant, () => ({ turns: [], waiting: [] }));
      for (const hold of call.sorted) {
        if (!hold.isCreated) continue;
        const turn = turnOf(call, hold);
        queue.turns.push(turn);
        if (turn.isQueued && !this.#hasChanged(merchant, turn)) queue.waiting.push(turn);
      }
      for (const { from, to } of waitsOf(call)) {
        const turn = { arrivedFrom: from, arrivedBy: from, servedFrom: to, servedBy: never };
        if (!this.#hasChanged(merchant, turn))
          queue.waiting.push({ sid: call.sid, pod: '', pool: '', isQueued: true, ...turn });
      }
    }
    for (const { turns, waiting } of queues.values())
      this.#overtaken(turns, waiting, 'had waited for longer');
    for (const [high, { turns: own, waiting }] of queues) {
      // At its limit it may wait beside free pods; it may have the pods of a pool that it was given once.
      if (this.callLimits.get(high)?.[0]?.limit !== never || this.facts.changes.length > 0) continue;
      const pools = new Set(own.map(({ pool }) => pool));
      for (const [low, { turns }] of queues)
        if (this.#priority(high) > this.#priority(low)) {
          const taken = turns.filter(({ pool }) => pool !== '' && pools.has(pool));
          const served = taken.map((turn) => ({ ...turn, arrivedFrom: turn.servedFrom }));
          this.#overtaken(served, waiting, 'has a higher priority');
        }
    }
  }

  /** @param {string} merchant */
  #priority = (merchant) => this.facts.setup.merchants?.[merchant]?.priority ?? 0;

  /** @param {Turn[]} turns @param {Turn[]} waiting @param {string} why */
  #overtaken(turns, waiting, why) {
    waiting.sort((a, b) => a.arrivedBy - b.arrivedBy);
    turns.sort((a, b) => a.arrivedFrom - b.arrivedFrom);
    /** @type {Turn | undefined} */
    let longest;
    let next = 0;
    for (const turn of turns) {
      for (; (waiting[next]?.arrivedBy ?? never) < turn.arrivedFrom; next++)
        if ((waiting[next]?.servedFrom ?? 0) > (longest?.servedFrom ?? -never)) longest = waiting[next];
      if (!longest || turn.servedBy >= longest.servedFrom || longest.sid === turn.sid) continue;
      const promise = turn.isQueued ? 13 : 12;
      const text = turn.isQueued
        ? `${turn.sid} got ${turn.pod} before ${longest.sid}, which ${why}`
        : `${turn.sid} got ${turn.pod} at once while ${longest.sid} waited`;
      this.say(
        { promise, at: turn.servedBy, sid: turn.sid, other: longest.sid, pod: turn.pod, text },
        longest.arrivedFrom,
      );
    }
  }

  /** Routers may have had different rules for its queue. @param {string} merchant @param {{ arrivedFrom: number, servedFrom: number }} turn */
  #hasChanged(merchant, { arrivedFrom, servedFrom }) {
    return this.facts.changes.some(
      ({ at, pools, merchants }) =>
        (merchant in merchants || Object.keys(pools).length > 0) &&
        at - changeMs <= servedFrom &&
        at + settledMs >= arrivedFrom,
    );
  }
}

/** The holds of a call that are certain during all of this time. @param {Call} call @param {number} at @param {number} done */
function covering({ sorted, maxEnds }, at, done) {
  const found = [];
  for (
    let i = firstIndex(sorted, ({ start }) => start > at) - 1;
    i >= 0 && (maxEnds[i] ?? -never) >= done;
    i--
  ) {
    const hold = /** @type {Hold} */ (sorted[i]);
    if (hold.end >= done && hold.end > hold.start) found.push(hold);
  }
  return found;
}

/** From the first to the last answer `waiting` of one place in the queue, the call certainly waited. @param {Call} call */
function waitsOf({ waits }) {
  /** @type {Map<string, { from: number, to: number }>} */
  const bySince = new Map();
  for (const { at, done, since } of waits) {
    const known = entry(bySince, since, () => ({ from: never, to: -never }));
    known.from = Math.min(known.from, done);
    known.to = Math.max(known.to, at);
  }
  return [...bySince.values()].filter(({ from, to }) => to > from);
}

/**
 * When a call asked for its pod and when it got it, as far as that is certain. `waited_ms` is the time between the two.
 * @param {Call} call
 * @param {Hold} hold
 * @returns {Turn}
 */
function turnOf({ sid, waits }, { pod, pool, from, waited, createdDone }) {
  const who = { sid, pod, pool, arrivedFrom: from, servedBy: createdDone };
  if (waited === undefined) return { ...who, arrivedBy: createdDone, servedFrom: from, isQueued: false };
  const tolerance = toleranceMs(waited);
  const asked = waits.filter(({ done }) => done <= createdDone).map(({ at }) => at);
  const servedFrom = Math.max(from + waited - tolerance, ...asked);
  return { ...who, arrivedBy: createdDone - waited + tolerance, servedFrom, isQueued: true };
}

/**
 * The highest limit in force at a moment at which the hold could have begun.
 * @param {{ at: number, limit: number }[]} limits
 * @param {Hold} hold
 */
function limitIn(limits, { from, start }) {
  let highest = -never;
  for (const [i, { at, limit }] of limits.entries()) {
    const until = limits[i + 1]?.at ?? never;
    if (at <= start + changeMs && until >= from - changeMs) highest = Math.max(highest, limit);
  }
  return highest;
}
