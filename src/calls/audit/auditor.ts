/**
 * The live audit: do calls and pods contradict each other, now, in the store that serves calls?
 *
 * It promises no false alarm and no burden. Names are read with cursors, in small pages, while everything moves; so a
 * name proves nothing. What is judged is always a part of the keys that one short script has read at one moment, and
 * that can be judged alone: some pods with all that belongs to them. What no pod accounts for (a record, an entry of an
 * index, a member of `available`, a trace of a pod, two equal fences) is only a suspect, and is read once more, together
 * with whatever could account for it, before it is a finding.
 *
 * One audit at a time: who asks meanwhile gets the outcome of the one under way. Its weakness is time: what came and
 * went between two audits is not seen, and the names of all pods and calls are in memory while it runs.
 */
import type { StoreConnection } from '../store/connection.js';
import { identifyKey, keysOf } from '../store/keys.js';
import { contradictions } from './checks.js';
import { type AuditReport, Findings, isViolation } from './findings.js';
import { checkKey, parseState } from './keyspace.js';
import { AuditReader } from './reader.js';

/** 10,000 pods with 5,000 calls take about a second: what takes longer than this is no use to who waits. */
export const longestAuditMs = 60_000;
/**
 * So that no script holds the store for long: a pod with its call takes about 30 us. A shared pod is one look however many
 * calls it has.
 */
const entriesPerLook = 50;

const names = keysOf('');

export class Auditor {
  readonly #connection: StoreConnection;
  readonly #stopping: AbortSignal | undefined;
  #running: Promise<AuditReport> | undefined;

  constructor(connection: StoreConnection, stopping?: AbortSignal) {
    this.#connection = connection;
    this.#stopping = stopping;
  }

  audit(): Promise<AuditReport> {
    this.#running ??= new Audit(this.#connection, this.#stopping).run().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }
}

class Audit {
  readonly #connection: StoreConnection;
  readonly #reader: AuditReader;
  readonly #stopping: AbortSignal | undefined;
  readonly #findings = new Findings();
  readonly #startMs: number;
  #keys = 0;
  /** The pool in whose set a pod was judged. */
  readonly #pods = new Map<string, string>();
  /** Calls that were judged with their pod, and the fence of each. */
  readonly #calls = new Map<string, string>();
  /** Entries of indexes that no pod has accounted for yet, by pool. */
  readonly #indexed = new Map<string, Set<string>>();
  /** Pods that the sweep leaves aside: see lua/lib/unreadable.lua. */
  readonly #unreadable = new Set<string>();
  /** Pools whose key of pods is of a wrong type: nothing can be said of who is assigned. */
  readonly #unreadablePools = new Set<string>();
  /** Which pod has a call that has no record: nothing else leads to it. */
  readonly #withoutRecord = new Map<string, string>();

  constructor(connection: StoreConnection, stopping: AbortSignal | undefined) {
    this.#connection = connection;
    this.#reader = new AuditReader(connection);
    this.#stopping = stopping;
    this.#startMs = connection.clock.monotonic();
  }

  async run(): Promise<AuditReport> {
    const limits = await this.#reader.pools();
    const named = await this.#readKeys();
    // A pool that nobody knows has pods and calls all the same.
    for (const pool of named.pools) if (!limits.has(pool)) limits.set(pool, 1);
    // Before the pods: a call that is in the index now is on a pod when that is looked at, or has ended by then.
    for (const pool of limits.keys()) {
      if (this.#isOver()) break;
      const calls = new Set<string>();
      this.#indexed.set(pool, calls);
      for await (const page of this.#unlessOver(this.#reader.indexed(pool)))
        for (const sid of page) calls.add(sid);
    }
    for (const [pool, limit] of limits) if (!this.#isOver()) await this.#judgePods(pool, limit);
    for (const pool of limits.keys()) if (!this.#isOver()) await this.#judgeAvailable(pool);
    for await (const page of this.#unlessOver(this.#reader.withMetadata()))
      for (const pod of page) named.pods.add(pod);
    await this.#judge(
      '',
      [...named.pods].filter((pod) => !this.#pods.has(pod)),
      [],
    );
    await this.#judge(
      '',
      [],
      [...named.calls].filter((sid) => !this.#calls.has(sid)),
    );
    for (const [pool, calls] of this.#indexed) {
      for (const some of pieces([...calls], entriesPerLook)) {
        const holders = new Set(some.flatMap((sid) => this.#withoutRecord.get(sid) ?? []));
        if (!this.#isOver()) await this.#look(pool, [...holders], some);
      }
    }
    await this.#judgeFences();
    const { violations, violationCount, pending, pendingCount } = this.#findings;
    return {
      complete: !this.#isOver(),
      tookMs: Math.round(this.#connection.clock.monotonic() - this.#startMs),
      pools: limits.size,
      pods: this.#pods.size,
      calls: this.#calls.size,
      keys: this.#keys,
      violationCount,
      violations,
      pendingCount,
      pending,
    };
  }

  #isOver(): boolean {
    const isLate = this.#connection.clock.monotonic() - this.#startMs > longestAuditMs;
    return isLate || this.#stopping?.aborted === true;
  }

  async *#unlessOver<T>(pages: AsyncGenerator<T>): AsyncGenerator<T> {
    for await (const page of pages) {
      if (this.#isOver()) return;
      yield page;
    }
  }

  /** Judges every key by its name, and remembers whom they speak of. */
  async #readKeys(): Promise<{ pods: Set<string>; calls: Set<string>; pools: Set<string> }> {
    const named = { pods: new Set<string>(), calls: new Set<string>(), pools: new Set<string>() };
    for await (const page of this.#unlessOver(this.#reader.keys())) {
      for (const [key, facts] of page) {
        const finding = checkKey(key, facts, this.#connection.keyPrefix);
        const { pod, call, pool } = identifyKey(key)?.subject ?? {};
        if (finding) this.#findings.add(finding);
        if (finding?.kind === 'wrong_type') {
          if (pod !== undefined && [names.podCalls(pod), names.pod(pod)].includes(key))
            this.#unreadable.add(pod);
          if (pool !== undefined && key === names.assigned(pool)) this.#unreadablePools.add(pool);
        }
        if (pod !== undefined) named.pods.add(pod);
        if (call !== undefined) named.calls.add(call);
        if (pool !== undefined) named.pools.add(pool);
        this.#keys += 1;
      }
    }
    return named;
  }

  async #judgePods(pool: string, limit: number): Promise<void> {
    const podsPerLook = Math.ceil(entriesPerLook / Math.max(1, limit));
    for await (const page of this.#unlessOver(this.#reader.assigned(pool))) {
      await this.#judge(pool, page, [], podsPerLook);
      for (const pod of page) this.#pods.set(pod, pool);
    }
  }

  /** Those of its own pods were judged with the pods. */
  async #judgeAvailable(pool: string): Promise<void> {
    for await (const page of this.#unlessOver(this.#reader.available(pool))) {
      const strangers = page.filter((pod) => this.#pods.get(pod) !== pool);
      await this.#judge(pool, strangers, []);
    }
  }

  async #judgeFences(): Promise<void> {
    const owners = new Map<string, string>();
    for (const [sid, fence] of this.#calls) {
      const other = owners.get(fence);
      // Both together: only one moment can show that they are equal.
      if (other !== undefined && fence !== '' && !this.#isOver()) await this.#look('', [], [other, sid]);
      owners.set(fence, sid);
    }
  }

  async #judge(
    pool: string,
    pods: readonly string[],
    calls: readonly string[],
    perLook = entriesPerLook,
  ): Promise<void> {
    for (const some of pieces(pods, perLook)) if (!this.#isOver()) await this.#look(pool, some, []);
    for (const some of pieces(calls, perLook)) if (!this.#isOver()) await this.#look(pool, [], some);
  }

  async #look(pool: string, pods: readonly string[], calls: readonly string[]): Promise<void> {
    const { keyspace, limitsSinceMs } = await this.#reader.look(pool, pods, calls);
    const asked = new Set(pods);
    const state = parseState(keyspace);
    for (const finding of contradictions(keyspace, { live: { limitsSinceMs } })) {
      // Of a pod that only a record names there is too little here to judge it.
      const isAboutAsked = finding.call !== undefined || finding.pod === undefined || asked.has(finding.pod);
      // What the sweep would repair there waits for the key, which is told of already.
      const waits = this.#unreadable.has(finding.pod ?? '') && !isViolation(finding);
      const home = state.pods.get(finding.pod ?? '')?.pool ?? '';
      const isUnknown = finding.kind === 'wrong_pool' && this.#unreadablePools.has(home);
      if (isAboutAsked && !waits && !isUnknown) this.#findings.add(finding);
    }
    for (const name of pods) {
      const pod = state.pods.get(name);
      for (const sid of pod?.calls.keys() ?? []) {
        const record = state.records.get(sid);
        this.#calls.set(sid, record?.get('fence') ?? '');
        if (!record) this.#withoutRecord.set(sid, name);
        // Whether the index is right about it was judged above.
        this.#indexed.get(pod?.pool ?? '')?.delete(sid);
      }
    }
  }
}

function pieces<T>(all: readonly T[], size: number): T[][] {
  const found: T[][] = [];
  for (let i = 0; i < all.length; i += size) found.push(all.slice(i, i + size));
  return found;
}
