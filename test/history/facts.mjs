// What is certain from the requests and replies of a history: which call held which pod from when until when, which calls
// waited, which pods drained. Shares no code with src/.
//
// A call with its fence is one `hold`. A reply that names it proves that it lived at a moment between `at` and `done`. So it
// lived from the first such `done` to the last such `at`. After that it lives until the earliest
// moment at which it could have ended: its lease, a release that could match, a report of its pod without it, the end of its
// pod, or a reply that says that it is over. A request without a reply may have happened at any time after it was sent.

/**
 * @typedef {{ sid: string, fence: number, pod: string, pool: string, merchant: string | undefined, from: number,
 *   start: number, firstAt: number, last: number, end: number, lastReport: number, isServed: boolean, isAdopted: boolean,
 *   isCreated: boolean, waited: number | undefined, createdAt: number, createdDone: number }} Hold
 * @typedef {{ at: number, done: number, fence?: number | undefined, isDone?: boolean }} Release
 * @typedef {{ at: number, done: number, how: string, key: string | number, promise: number }} Denial
 * @typedef {{ at: number, done: number, since: string }} Waiting
 * @typedef {{ sid: string, holds: Map<number, Hold>, sorted: Hold[], maxEnds: number[], unsettledFrom: number, enders: Map<string | number, Enders>,
 *   releases: Release[], denials: Denial[], waits: Waiting[], merchants: Set<string | undefined> }} Call
 * @typedef {{ at: number, done: number, calls: Set<string>, hasTime: boolean }} Report
 * @typedef {{ pod: string, at: number, start: number, end: number }} Drain
 */

/** Clocks of the store and of the writer may drift apart by 1 %, and by 20 ms in short times. */
export const toleranceMs = (/** @type {number} */ ms) => Math.max(20, ms / 100);
/** A change of configuration, or of a pod without `until`, has certainly taken effect after this time. */
export const settledMs = 60_000;

const never = Number.POSITIVE_INFINITY;
/** Refusals that changed nothing. Other errors of the server leave open whether the request was executed. */
const refusals = new Set([
  'no_pods',
  'queue_full',
  'wait_expired',
  'wait_over',
  'store_full',
  'merchant_limit',
]);

/** Things that may have happened between `at` and `done`; answers which one could be the first after a time. */
export class Enders {
  /** @type {{ at: number, done: number }[]} */
  list = [];
  /** @type {number[] | undefined} */
  #earliest;

  /**
   * @param {number} at
   * @param {number} done
   */
  add(at, done) {
    this.list.push({ at, done });
    this.#earliest = undefined;
  }

  /** The earliest moment after `time` at which one of them could have happened. @param {number} time */
  after(time) {
    if (!this.#earliest) {
      this.list.sort((a, b) => a.done - b.done);
      this.#earliest = suffixMinimum(this.list);
    }
    const index = firstIndex(this.list, (one) => one.done >= time);
    return Math.max(time, this.#earliest[index] ?? never);
  }
}

/** @param {{ at: number }[]} list */
function suffixMinimum(list) {
  const minimum = new Array(list.length);
  for (let i = list.length - 1, least = never; i >= 0; i--) {
    least = Math.min(least, list[i]?.at ?? never);
    minimum[i] = least;
  }
  return minimum;
}

/**
 * The first index of a sorted list for which `test` holds.
 * @template T
 * @param {readonly T[]} list
 * @param {(one: T) => boolean} test
 */
export function firstIndex(list, test) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(/** @type {T} */ (list[middle]))) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * @template K, V
 * @param {Map<K, V>} map
 * @param {K} key
 * @param {() => V} make
 * @returns {V}
 */
export function entry(map, key, make) {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

export class Facts {
  /** @type {any} */
  setup = {};
  requests = 0;
  lostReplies = 0;
  /** @type {Map<string, Call>} */
  calls = new Map();
  /** @type {{ at: number, until: number, kind: string }[]} Faults that lose acknowledged writes. */
  losses = [];
  faults = 0;
  /** When the writer stopped: nothing is known of the time after it. */
  over = never;
  /** @type {{ at: number, pools: Record<string, any>, merchants: Record<string, any> }[]} */
  changes = [];
  /** @type {Drain[]} */
  drains = [];
  /** @type {{ promise: number, at: number, sid: string, other: string, pod: string, text: string }[]} Contradictions inside one reply. */
  oddities = [];
  /** @type {Map<string, Enders>} */
  #gone = new Map();
  /** @type {Map<string, Enders>} */
  #undrains = new Map();
  /** @type {Map<string, { answered: Report[], lost: Report[], earliest: number[] }>} */
  #reports = new Map();

  /** @param {any} line */
  add(line) {
    if (line.type === 'request') this.#request(line);
    else if (line.type === 'setup') this.setup = line;
    else if (line.type === 'pod_gone')
      entry(this.#gone, line.pod, () => new Enders()).add(line.at, line.until ?? line.at + settledMs);
    else if (line.type === 'changed')
      this.changes.push({ at: line.at, pools: line.pools ?? {}, merchants: line.merchants ?? {} });
    else if (line.type === 'end') this.over = line.at;
    else if (line.type === 'fault') {
      this.faults += 1;
      if (line.loses_writes === true) this.losses.push(line);
    }
  }

  /** Call it after the last line. */
  conclude() {
    this.changes.sort((a, b) => a.at - b.at);
    for (const pod of this.#reports.values()) {
      pod.answered.sort((a, b) => a.done - b.done);
      pod.lost.sort((a, b) => a.at - b.at);
      pod.earliest = suffixMinimum(pod.answered);
    }
    for (const call of this.calls.values()) {
      call.sorted = [...call.holds.values()].sort((a, b) => a.start - b.start);
      for (const hold of call.sorted) {
        if (!hold.isCreated) hold.from = hold.isAdopted ? hold.createdAt : call.unsettledFrom;
        else if (hold.waited !== undefined) hold.from = Math.min(hold.createdAt, call.unsettledFrom);
        if (hold.from === never) hold.from = -never;
        hold.end = this.#endOf(call, hold);
      }
      let latest = -never;
      call.maxEnds = call.sorted.map(({ end }) => {
        latest = Math.max(latest, end);
        return latest;
      });
    }
    for (const drain of this.drains) {
      const ends = [this.#undrains, this.#gone].map((all) => all.get(drain.pod)?.after(drain.at) ?? never);
      const lasts = this.setup.drain_ms ?? 0;
      drain.end = Math.min(drain.at + lasts - toleranceMs(lasts), ...ends);
    }
  }

  /** @param {any} line */
  #request(line) {
    this.requests += 1;
    const { status, op, at } = line;
    if (status === null) this.lostReplies += 1;
    const answer = line.answer ?? {};
    const isOpen = status === null || (status >= 500 && !refusals.has(answer.code));
    const done = isOpen ? never : line.done;
    if (op === 'report') return this.#report(line, done, isOpen);
    if (op === 'undrain') {
      if (isOpen || status === 200) entry(this.#undrains, line.pod, () => new Enders()).add(at, done);
      return;
    }
    if (op === 'drain') {
      if (status === 200) this.drains.push({ pod: line.pod, at, start: done, end: done });
      return;
    }
    const call = this.#call(line.sid);
    if (op === 'allocate') this.#allocate(call, line, answer, done, isOpen);
    else {
      if (op === 'release') call.releases.push({ at, done, fence: line.fence, isDone: status === 200 });
      if (op === 'release' && (isOpen || status === 200)) this.#released(call, line, answer, done);
      if (op === 'renew' && status === 200 && line.fence !== undefined) {
        const hold = call.holds.get(line.fence);
        if (hold) this.#lives(hold, at, done, true);
      }
      const code = answer.code;
      if (code === 'call_not_found')
        this.#denied(call, { at, done, how: `${op} was answered ${code}`, key: '', promise: 5 });
      if (code === 'stale_fence' && line.fence !== undefined)
        this.#denied(call, { at, done, how: `${op} was answered ${code}`, key: line.fence, promise: 5 });
    }
  }

  /**
   * @param {Call} call
   * @param {any} line
   * @param {any} answer
   * @param {number} done
   * @param {boolean} isOpen
   */
  #allocate(call, { at, status, merchant }, answer, done, isOpen) {
    call.merchants.add(merchant);
    if (isOpen || status === 202) call.unsettledFrom = Math.min(call.unsettledFrom, at);
    if (status === 202) {
      this.#denied(call, { at, done, how: 'allocate was answered waiting', key: '', promise: 14 });
      call.waits.push({ at, done, since: String(answer.waiting_since) });
      if (answer.pod_name)
        this.#odd(14, done, call.sid, answer.pod_name, 'a waiting call was answered with a pod');
    }
    if (status !== 200) return;
    const hold = this.#hold(call, answer.fence, answer.pod_name, answer.source_pool ?? '', done);
    if (hold.pool === '') hold.pool = answer.source_pool ?? '';
    hold.merchant = merchant;
    if (answer.was_existing === false && !hold.isCreated) {
      hold.isCreated = true;
      hold.createdAt = hold.from = at;
      hold.createdDone = done;
      hold.waited = answer.waited_ms;
    } else if (answer.was_existing === false)
      this.#odd(2, done, call.sid, hold.pod, `fence ${hold.fence} was given as new twice`);
    this.#lives(hold, at, done, false);
  }

  /** @param {Call} call @param {any} line @param {any} answer @param {number} done */
  #released(call, { at, fence, status }, answer, done) {
    if (answer.was_waiting === true) {
      this.#denied(call, { at, done, how: 'release was answered was_waiting', key: '', promise: 14 });
      return;
    }
    entry(call.enders, fence ?? '', () => new Enders()).add(at, done);
    const hold = status === 200 && fence !== undefined ? call.holds.get(fence) : undefined;
    if (hold) this.#lives(hold, at, done, true);
  }

  /**
   * @param {any} line
   * @param {number} done
   * @param {boolean} isOpen
   */
  #report(line, done, isOpen) {
    const { pod, at, calls, status, answer } = line;
    if (!isOpen && status !== 200) return;
    const report = { at, done, calls: new Set(calls), hasTime: line.as_of !== undefined };
    const list = entry(this.#reports, pod, () => ({ answered: [], lost: [], earliest: [] }));
    (isOpen ? list.lost : list.answered).push(report);
    if (isOpen) return;
    const fences = answer.fences ?? {};
    for (const sid of [...(answer.renewed ?? []), ...(answer.adopted ?? [])]) {
      if (fences[sid] === undefined) continue;
      const hold = this.#hold(this.#call(sid), fences[sid], pod, '', done);
      if (!hold.isCreated && hold.firstAt === never && answer.adopted?.includes(sid)) {
        hold.isAdopted = true;
        hold.createdAt = at;
      }
      this.#lives(hold, at, done, true);
      hold.lastReport = Math.max(hold.lastReport, at);
    }
    for (const sid of answer.conflicts ?? [])
      this.#denied(this.#call(sid), {
        at,
        done,
        how: 'its pod was to drop it',
        key: `pod ${pod}`,
        promise: 5,
      });
    for (const sid of answer.ended ?? [])
      entry(this.#call(sid).enders, `pod ${pod}`, () => new Enders()).add(at, done);
  }

  /** @param {string} sid @returns {Call} */
  #call(sid) {
    return entry(this.calls, sid, () => ({
      sid,
      holds: new Map(),
      sorted: [],
      maxEnds: [],
      unsettledFrom: never,
      enders: new Map(),
      releases: [],
      denials: [],
      waits: [],
      merchants: new Set(),
    }));
  }

  /**
   * @param {Call} call
   * @param {number} fence
   * @param {string} pod
   * @param {string} pool
   * @param {number} done
   * @returns {Hold}
   */
  #hold(call, fence, pod, pool, done) {
    const hold = entry(call.holds, fence, () => ({
      sid: call.sid,
      fence,
      pod,
      pool,
      merchant: undefined,
      from: -never,
      start: never,
      firstAt: never,
      last: -never,
      end: -never,
      lastReport: -never,
      isServed: false,
      isAdopted: false,
      isCreated: false,
      waited: undefined,
      createdAt: never,
      createdDone: never,
    }));
    if (hold.pod !== pod)
      this.#odd(2, done, call.sid, pod, `fence ${fence} was answered with ${hold.pod} and ${pod}`);
    return hold;
  }

  /**
   * A reply proves that the call lived between `at` and `done`.
   * @param {Hold} hold
   * @param {number} at
   * @param {number} done
   * @param {boolean} isServed
   */
  #lives(hold, at, done, isServed) {
    if (done < hold.start) {
      hold.start = done;
      hold.firstAt = at;
    }
    hold.last = Math.max(hold.last, at);
    if (isServed) hold.isServed = true;
  }

  /** @param {Call} call @param {Denial} denial */
  #denied(call, denial) {
    call.denials.push(denial);
    // From its reply on the client knows that the call is over.
    entry(call.enders, denial.key, () => new Enders()).add(denial.done, denial.done);
  }

  /** @param {number} promise @param {number} at @param {string} sid @param {string} pod @param {string} text */
  #odd(promise, at, sid, pod, text) {
    this.oddities.push({ promise, at, sid, other: '', pod, text: `${sid}: ${text}` });
  }

  /** @param {Call} call @param {Hold} hold */
  #endOf(call, hold) {
    const { last, pod, fence } = hold;
    const { lease_ms, no_show_ms } = this.setup;
    const ends = ['', fence, `pod ${pod}`].map((key) => call.enders.get(key)?.after(last) ?? never);
    ends.push(last + lease_ms - toleranceMs(lease_ms), this.#gone.get(pod)?.after(last) ?? never);
    if (no_show_ms !== undefined && !hold.isServed)
      ends.push(hold.from + no_show_ms - toleranceMs(no_show_ms));
    const next =
      call.sorted[firstIndex(call.sorted, (other) => other.start >= last && other.start > hold.start)];
    if (next) ends.push(next.start);
    ends.push(this.#omittedAt(hold), this.over);
    return Math.max(last, Math.min(...ends));
  }

  /** When its pod could first have reported without it, since the last report with it. @param {Hold} hold */
  #omittedAt({ pod, sid, from, lastReport }) {
    const reports = this.#reports.get(pod);
    if (!reports) return never;
    const base = Math.max(from, lastReport);
    /** A report that says when it was written judges no call that was allocated later. @param {Report} report */
    const omits = (report) => !report.calls.has(sid) && !(report.hasTime && report.at < base);
    let first = never;
    const { answered, lost, earliest } = reports;
    for (let i = firstIndex(answered, ({ done }) => done >= base); i < answered.length; i++) {
      if ((earliest[i] ?? never) >= first) break;
      const report = /** @type {Report} */ (answered[i]);
      if (omits(report)) first = Math.min(first, report.at);
    }
    for (const report of lost) {
      if (report.at >= first) break;
      if (omits(report)) first = report.at;
    }
    return first;
  }
}
