/**
 * The leader's operations. Every write carries the epoch of the leader's term, except a pod that registers itself. The store
 * refuses an older epoch; that is an `EpochRefused`, which ends the leader's term.
 */
import type { PoolId } from '../../config/tiers.js';
import { type Reply, type StoreConnection, unlessWrongType } from './connection.js';
import { keysOf } from './keys.js';
import { list, pairs } from './replies.js';

export class EpochRefused extends Error {
  override readonly name = 'EpochRefused';
  constructor(epoch: string) {
    super(`a newer leader than epoch ${epoch} has written to the store`);
  }
}

export interface PodRegistration {
  name: string;
  uid: string;
  /** Set by a label or an operator; undefined: the store chooses by the targets. */
  pool: PoolId | undefined;
  /** Why it takes no calls, or empty. */
  suspended: '' | 'terminating' | 'not_ready' | 'awaiting_report';
  /** Remove it if it has neither a call nor a drain. */
  idleGoes?: boolean;
  /** Keep it despite `idleGoes` if it is registered and its container still runs: its reports still count. */
  idleStays?: boolean;
  /** If higher than the stored count, the calls from before the restart are lost. */
  restarts?: number | undefined;
  /** ISO time; later calls belong to the restarted container, or to the next one. */
  startedAt?: string | undefined;
  /** Its container ended and none runs: calls from before `startedAt` are lost. */
  ended?: boolean;
  /** After the store lost its data, it takes calls only once it has reported the calls it serves. */
  mustReport: boolean;
  metadata: string;
}

export interface Assignment {
  /** Merchant pools and the chain's tiers with their targets, in the order in which they are filled. */
  candidates: readonly { pool: PoolId; target: number }[];
  /** Where a pod goes when all targets are met. */
  last: PoolId;
}

export interface Registered {
  podName: string;
  /**
   * `waiting`: it has more calls than its new pool allows, and moves when they have ended.
   * `removed`, `skipped`: it was idle and not ready, and was registered before or not.
   * `replaced`: it has the name of an earlier pod, and calls that were allocated before the leader noticed.
   * `unreadable`: one of its keys has a wrong type (`wrongKey`); it takes no new call, and nothing else changed.
   */
  outcome: 'new' | 'known' | 'replaced' | 'moved' | 'waiting' | 'removed' | 'skipped' | 'unreadable';
  /** Empty if it has none. */
  pool: PoolId | '';
  lostCalls: string[];
  wrongKey?: string;
}

/** A pod that takes no new call until an operator renames or deletes this key of a wrong type. */
export interface UnreadablePod {
  podName: string;
  key: string;
}

/** A pod that was blocked because it stopped reporting. */
export interface SilentPod {
  podName: string;
  pool: PoolId;
  silentSeconds: number;
}

export type SweepPhase = 'calls' | 'pods' | 'available';

export interface SweepBatch {
  cursor: string;
  lookedAt: number;
  callsEnded: number;
  podsPutBack: number;
  podsTakenOut: number;
  unreadable: UnreadablePod[];
}

export class PoolStore {
  constructor(
    readonly connection: StoreConnection,
    readonly reportGraceMs: number,
  ) {}

  async takeEpoch(leader = ''): Promise<string> {
    return String(await this.connection.run('takeEpoch', [leader], 'take_epoch'));
  }

  /** With an empty epoch the pod registers itself. */
  async register(
    epoch: string,
    pods: readonly PodRegistration[],
    assignment: Assignment,
  ): Promise<Registered[]> {
    const request = {
      candidates: assignment.candidates.map(({ pool, target }) => [pool, target]),
      last: assignment.last,
      pods: pods.map(({ pool = '', idleGoes = false, idleStays = false, ended = false, ...pod }) => ({
        ...{ name: pod.name, uid: pod.uid, pool, suspended: pod.suspended, metadata: pod.metadata },
        ...{ idle_goes: idleGoes, idle_stays: idleStays, must_report: pod.mustReport },
        ...{ ended, restarts: pod.restarts, started_at: pod.startedAt },
      })),
    };
    const rows = await this.#write('register', epoch, [this.reportGraceMs, JSON.stringify(request)]);
    return rows.map((row) => {
      const [podName = '', outcome, pool = '', ...lostCalls] = list(row).map(String);
      if (outcome === 'unreadable') return { podName, outcome, pool: '', lostCalls, wrongKey: pool };
      return { podName, outcome: outcome as Registered['outcome'], pool: pool as PoolId, lostCalls };
    });
  }

  /** The names of a pool's pods; may miss pods that change pools during the scan. Empty if the key has a wrong type. */
  async *assigned(pool: PoolId): AsyncGenerator<string> {
    const key = keysOf(this.connection.keyPrefix).assigned(pool);
    let cursor = '0';
    do {
      const [next, names] = await this.connection.command('assigned', (client) =>
        unlessWrongType(client.sscan(key, cursor, 'COUNT', 500), ['0', []]),
      );
      yield* names;
      cursor = next;
    } while (cursor !== '0');
  }

  /** Live calls of each pod, or -1 for an unregistered or unreadable one. */
  async suspend(
    epoch: string,
    reason: 'terminating' | 'not_ready' | 'unconfirmed',
    pods: readonly string[],
  ): Promise<number[]> {
    return (await this.#write('suspend', epoch, [reason, ...pods])).map(Number);
  }

  async remove(
    epoch: string,
    pods: readonly string[],
    reason: string,
  ): Promise<{ podName: string; wasKnown: boolean; lostCalls: string[] }[]> {
    const rows = await this.#write('remove', epoch, [this.reportGraceMs, reason, ...pods]);
    return rows.map((row) => {
      const [podName = '', known, ...lostCalls] = list(row).map(String);
      return { podName, wasKnown: known === '1', lostCalls };
    });
  }

  /** Pods that the removal brake holds (`ifUnreadable` if that key has a wrong type), and those confirmed by an operator. */
  async removals(ifUnreadable: readonly string[] = []): Promise<{ held: string[]; confirmed: string[] }> {
    const keys = keysOf(this.connection.keyPrefix);
    const [held, confirmed] = await this.connection.command('removals', (client) =>
      Promise.all([
        unlessWrongType(client.smembers(keys.removalsHeld), [...ifUnreadable]),
        unlessWrongType(client.smembers(keys.removalsConfirmed), []),
      ]),
    );
    return { held: held.sort(), confirmed: confirmed.sort() };
  }

  /** The pods of a list that have live calls or are unreadable. */
  async withCalls(pods: readonly string[]): Promise<string[]> {
    const { podCalls } = keysOf(this.connection.keyPrefix);
    const counts = await this.connection.command('removals', (client) =>
      Promise.all(pods.map((pod) => unlessWrongType(client.zcard(podCalls(pod)), 1))),
    );
    return pods.filter((_, i) => counts[i] !== 0);
  }

  /** Resolves to the number of pods that the leader will remove. */
  async confirmRemovals(by: string): Promise<number> {
    return Number(await this.connection.run('confirmRemovals', [by], 'confirm_removals'));
  }

  /** Every pod that ever reported and was not removed: the time since its last report, and its metadata. */
  async reported(): Promise<{ name: string; silentMs: number; metadata: string | null }[]> {
    const keys = keysOf(this.connection.keyPrefix);
    const { nowMs, seen } = await this.connection.command('reported', async (client) => {
      // Scores before the time: a report in between makes a pod look younger, never older.
      // A wrong type stays an error: an empty list would remove every pod.
      const seen = await client.zrange(keys.reported, '0', '-1', 'WITHSCORES');
      const [seconds, micros] = await client.time();
      return { nowMs: Number(seconds) * 1000 + Number(micros) / 1000, seen };
    });
    const names = pairs(seen).map(([name]) => name);
    const metadata =
      names.length === 0
        ? []
        : await this.connection.command('reported', (client) =>
            unlessWrongType(client.hmget(keys.podMetadata, ...names), []),
          );
    return pairs(seen).map(([name, atMs], i) => ({
      name,
      silentMs: nowMs - Number(atMs),
      metadata: metadata[i] ?? null,
    }));
  }

  /** Looks at `batch` silent pods after the first `offset` and blocks them; `left` of them stay unblocked. */
  async blockSilent(
    epoch: string,
    offset: number,
    batch: number,
  ): Promise<{ lookedAt: number; left: number; blocked: SilentPod[] }> {
    const [lookedAt, left, ...rows] = await this.#write('blockSilent', epoch, [offset, batch]);
    const blocked = rows.map((row) => {
      const [podName = '', pool, seconds] = list(row).map(String);
      return { podName, pool: pool as PoolId, silentSeconds: Number(seconds) };
    });
    return { lookedAt: Number(lookedAt), left: Number(left), blocked };
  }

  /** Unblocks at most `batch` pods that have cooled off; resolves to their number. */
  async endFlapping(epoch: string, batch: number): Promise<number> {
    return Number((await this.#write('endFlapping', epoch, [batch]))[0]);
  }

  async sweep(
    epoch: string,
    pool: PoolId,
    phase: SweepPhase,
    cursor: string,
    batch: number,
  ): Promise<SweepBatch> {
    const args = [this.reportGraceMs, pool, phase, cursor, batch];
    const reply = await this.#write('sweep', epoch, args);
    const [next, lookedAt, callsEnded, podsPutBack, podsTakenOut, ...unreadable] = reply;
    return {
      cursor: String(next),
      lookedAt: Number(lookedAt),
      callsEnded: Number(callsEnded),
      podsPutBack: Number(podsPutBack),
      podsTakenOut: Number(podsTakenOut),
      unreadable: pairs(unreadable.map(String)).map(([podName, key]) => ({ podName, key })),
    };
  }

  async #write(
    script: 'register' | 'suspend' | 'remove' | 'blockSilent' | 'endFlapping' | 'sweep',
    epoch: string,
    args: readonly (string | number)[],
  ): Promise<Reply[]> {
    const [code, ...rest] = list(await this.connection.run(script, [epoch, ...args]));
    if (code === 'stale_epoch') throw new EpochRefused(epoch);
    return rest;
  }
}
