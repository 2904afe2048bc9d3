/**
 * The live audit: checks whether calls and pods in a running store contradict each other.
 *
 * Guarantees: no false alarm, and no noticeable load. Names are read in small pages with cursors while they change, so a name
 * alone proves nothing. Each check runs on keys that one short script read at one moment: some pods with everything that
 * belongs to them. Anything that no pod accounts for (a record, an index entry, a member of `available`, keys of a removed
 * pod, two equal fences) is read once more, together with its possible owners, before it is reported.
 *
 * One audit runs at a time. Requests during an audit share the next one, because this one may have read what has changed
 * before they were sent. Weaknesses: a contradiction that appears and disappears between two audits is not seen, and the
 * names of all pods and calls are in memory during an audit.
 */
import type { StoreConnection } from '../store/connection.js';
import { availableKey, identifyKey, keysOf } from '../store/keys.js';
import { contradictions } from './checks.js';
import { type AuditReport, Findings, isViolation } from './findings.js';
import { checkKey, parseState, type State } from './keyspace.js';
import { AuditReader, type Part } from './reader.js';

/** 10,000 pods with 5,000 calls take about a second; a client waits no longer than this. */
const maxAuditMs = 60_000;
/** Limits the time of one script: a pod with its call takes about 30 us. A shared pod is read whole. */
const entriesPerRead = 50;

const names = keysOf('');

export class Auditor {
  #running: Promise<AuditReport> | undefined;
  /** Starts when the running one ends. */
  #next: Promise<AuditReport> | undefined;

  constructor(
    private readonly connection: StoreConnection,
    private readonly stopping?: AbortSignal,
  ) {}

  audit(): Promise<AuditReport> {
    this.#next ??= Promise.allSettled([this.#running]).then(() => {
      this.#next = undefined;
      this.#running = new Audit(this.connection, this.stopping).run();
      return this.#running;
    });
    return this.#next;
  }
}

class Audit {
  readonly #reader: AuditReader;
  readonly #findings = new Findings();
  readonly #startMs: number;
  #keys = 0;
  /** Checked pods, with the pool in whose set they were found. */
  readonly #pods = new Map<string, string>();
  /** Calls checked with their pod, with their fences. */
  readonly #calls = new Map<string, string>();
  /** Index entries by pool that no checked pod has. */
  readonly #indexed = new Map<string, Set<string>>();
  /** Pods that the sweep skips: see lua/lib/unreadable.lua. */
  readonly #unreadable = new Set<string>();
  /** Pools whose key `assigned` has a wrong type. */
  readonly #unreadablePools = new Set<string>();
  /** Calls without a record, with their pod. */
  readonly #withoutRecord = new Map<string, string>();

  constructor(
    private readonly connection: StoreConnection,
    private readonly stopping: AbortSignal | undefined,
  ) {
    this.#reader = new AuditReader(connection);
    this.#startMs = connection.clock.monotonic();
  }

  async run(): Promise<AuditReport> {
    const limits = await this.#reader.pools();
    const named = await this.#readKeys();
    // A pool that is missing in `pools` may have pods and calls.
    for (const pool of named.pools) if (!limits.has(pool)) limits.set(pool, 1);
    // Before the pods: a call of the index is then on a pod when that is read, or has ended.
    for (const pool of limits.keys()) {
      if (this.#isOver()) break;
      const calls = new Set<string>();
      this.#indexed.set(pool, calls);
      for await (const page of this.#members(this.#reader.keyNames.poolCalls(pool)))
        for (const sid of page) calls.add(sid);
    }
    for (const [pool, limit] of limits) if (!this.#isOver()) await this.#checkPods(pool, limit);
    for (const pool of limits.keys()) if (!this.#isOver()) await this.#checkAvailable(pool);
    for await (const page of this.#members(this.#reader.keyNames.podMetadata))
      for (const pod of page) named.pods.add(pod);
    const otherPods = [...named.pods].filter((pod) => !this.#pods.has(pod));
    await this.#check('', otherPods, []);
    const otherCalls = [...named.calls].filter((sid) => !this.#calls.has(sid));
    await this.#check('', [], otherCalls);
    for (const [pool, calls] of this.#indexed) {
      for (const some of pieces([...calls], entriesPerRead)) {
        const holders = new Set(some.flatMap((sid) => this.#withoutRecord.get(sid) ?? []));
        if (!this.#isOver()) await this.#checkTogether(pool, [...holders], some);
      }
    }
    await this.#checkWaiting(named.merchants, named.waited);
    await this.#checkFences();
    const { violations, violation_count, pending, pending_count } = this.#findings;
    return {
      complete: !this.#isOver(),
      took_ms: Math.round(this.connection.clock.monotonic() - this.#startMs),
      looked_at: {
        pools: limits.size,
        pods: this.#pods.size,
        calls: this.#calls.size,
        keys: this.#keys,
      },
      ...{ violation_count, violations, pending_count, pending },
    };
  }

  #isOver(): boolean {
    const isLate = this.connection.clock.monotonic() - this.#startMs > maxAuditMs;
    return isLate || this.stopping?.aborted === true;
  }

  async *#untilOver<T>(pages: AsyncGenerator<T>): AsyncGenerator<T> {
    for await (const page of pages) {
      if (this.#isOver()) return;
      yield page;
    }
  }

  #members(key: string): AsyncGenerator<string[]> {
    return this.#untilOver(this.#reader.members(key));
  }

  /** Checks every key by its name, and collects what keys belong to; `waited`: the pools that calls wait for. */
  async #readKeys(): Promise<Record<'pods' | 'calls' | 'pools' | 'merchants' | 'waited', Set<string>>> {
    const named = {
      pods: new Set<string>(),
      calls: new Set<string>(),
      pools: new Set<string>(),
      merchants: new Set<string>(),
      waited: new Set<string>(),
    };
    for await (const page of this.#untilOver(this.#reader.keys())) {
      for (const [key, facts] of page) {
        const finding = checkKey(key, facts, this.connection.keyPrefix);
        const { pod, call, pool, merchant } = identifyKey(key)?.subject ?? {};
        if (finding) this.#findings.add(finding);
        if (finding?.kind === 'wrong_type') {
          if (pod !== undefined && [names.podCalls(pod), names.pod(pod)].includes(key))
            this.#unreadable.add(pod);
          if (pool !== undefined && key === names.assigned(pool)) this.#unreadablePools.add(pool);
        }
        if (pod !== undefined) named.pods.add(pod);
        if (call !== undefined) named.calls.add(call);
        if (merchant !== undefined) named.merchants.add(merchant);
        // A queue may wait for a pool that does not exist.
        if (pool !== undefined) (key === names.waiting(pool) ? named.waited : named.pools).add(pool);
        this.#keys += 1;
      }
    }
    return named;
  }

  async #checkPods(pool: string, limit: number): Promise<void> {
    const podsPerRead = Math.ceil(entriesPerRead / Math.max(1, limit));
    for await (const page of this.#members(this.#reader.keyNames.assigned(pool))) {
      await this.#check(pool, page, [], podsPerRead);
      for (const pod of page) this.#pods.set(pod, pool);
    }
  }

  /** The members that are pods of this pool were checked already. */
  async #checkAvailable(pool: string): Promise<void> {
    for await (const page of this.#members(availableKey(this.#reader.keyNames, pool))) {
      const others = page.filter((pod) => this.#pods.get(pod) !== pool);
      await this.#check(pool, others, []);
    }
  }

  async #checkWaiting(merchants: ReadonlySet<string>, pools: ReadonlySet<string>): Promise<void> {
    const listed = new Map<string, string[]>([...merchants].map((name) => [name, []]));
    const { waiting, waitingQueues, waitingCalls, limited } = this.#reader.keyNames;
    for (const pool of pools)
      for await (const page of this.#members(waiting(pool)))
        for (const name of page) listed.set(name, [...(listed.get(name) ?? []), pool]);
    for await (const page of this.#members(waitingQueues))
      for (const name of page) listed.set(name, listed.get(name) ?? []);
    for (const [name, itsPools] of listed) {
      const calls = new Set<string>();
      for (const key of [waitingCalls(name), limited(name)])
        for await (const page of this.#members(key)) for (const sid of page) calls.add(sid);
      for (const some of calls.size === 0 ? [[]] : pieces([...calls], entriesPerRead))
        if (!this.#isOver()) this.#judge(await this.#reader.readWaiting(name, itsPools, some), []);
    }
  }

  async #checkFences(): Promise<void> {
    const owners = new Map<string, string>();
    for (const [sid, fence] of this.#calls) {
      const other = owners.get(fence);
      // Read both together: only one moment can prove that they are equal.
      if (other !== undefined && fence !== '' && !this.#isOver())
        await this.#checkTogether('', [], [other, sid]);
      owners.set(fence, sid);
    }
  }

  async #check(
    pool: string,
    pods: readonly string[],
    calls: readonly string[],
    perRead = entriesPerRead,
  ): Promise<void> {
    for (const some of pieces(pods, perRead)) if (!this.#isOver()) await this.#checkTogether(pool, some, []);
    for (const some of pieces(calls, perRead)) if (!this.#isOver()) await this.#checkTogether(pool, [], some);
  }

  async #checkTogether(pool: string, pods: readonly string[], calls: readonly string[]): Promise<void> {
    const state = this.#judge(await this.#reader.read(pool, pods, calls), pods);
    for (const name of pods) {
      const pod = state.pods.get(name);
      for (const sid of pod?.calls.keys() ?? []) {
        const record = state.records.get(sid);
        this.#calls.set(sid, record?.get('fence') ?? '');
        if (!record) this.#withoutRecord.set(sid, name);
        // The checks above include its index entry.
        this.#indexed.get(pod?.pool ?? '')?.delete(sid);
      }
    }
  }

  /** Checks a part of the keys, of which only the pods asked for were read completely. */
  #judge({ keyspace, limitsSinceMs }: Part, pods: readonly string[]): State {
    const asked = new Set(pods);
    const state = parseState(keyspace);
    for (const finding of contradictions(keyspace, { live: { limitsSinceMs } })) {
      // A pod that only a record names was not read completely.
      const isAboutAsked = finding.call !== undefined || finding.pod === undefined || asked.has(finding.pod);
      // The sweep repairs an unreadable pod only after its key, which is reported already.
      const isWaiting = this.#unreadable.has(finding.pod ?? '') && !isViolation(finding);
      const home = state.pods.get(finding.pod ?? '')?.pool ?? '';
      const isUnknown = finding.kind === 'wrong_pool' && this.#unreadablePools.has(home);
      if (isAboutAsked && !isWaiting && !isUnknown) this.#findings.add(finding);
    }
    return state;
  }
}

function pieces<T>(all: readonly T[], size: number): T[][] {
  const found: T[][] = [];
  for (let i = 0; i < all.length; i += size) found.push(all.slice(i, i + size));
  return found;
}
