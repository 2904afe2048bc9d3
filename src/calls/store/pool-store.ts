/**
 * The leader's operations. Every write carries the epoch of the leader's term (but a pod's own word, see `register`); the store refuses an older one,
 * and that refusal is an `EpochRefused`, which ends the term of whoever meets it.
 */
import type { PoolId } from '../../config/tiers.js';
import { type Reply, type StoreConnection, unlessWrongType } from './connection.js';
import { keysOf } from './keys.js';
import { pairs } from './replies.js';
import { list } from './store.js';

export class EpochRefused extends Error {
  override readonly name = 'EpochRefused';
  constructor(epoch: string) {
    super(`the store has seen a newer leader than epoch ${epoch}`);
  }
}

export interface PodRegistration {
  name: string;
  uid: string;
  /** Wanted by label or by hand; undefined lets the store choose by the targets. */
  pool: PoolId | undefined;
  /** Why it takes no calls although it is known, or empty. */
  suspended: '' | 'terminating' | 'not_ready' | 'awaiting_report';
  /** It goes if it has neither a call nor a drain: nothing of it is worth keeping. */
  idleGoes?: boolean;
  /** It stays although `idleGoes`, if it is known and its container runs on: what it has reported still holds. */
  idleStays?: boolean;
  /** More than the store knows of: the calls it had before the restart are lost. */
  restarts?: number | undefined;
  /** ISO time; calls allocated later belong to the restarted container, or to the next one. */
  startedAt?: string | undefined;
  /** Its container has ended and none runs: the calls from before `startedAt` are lost. */
  ended?: boolean;
  /** After a loss of the store's content it takes calls only once it has reported what it serves. */
  mustReport: boolean;
  metadata: string;
}

export interface Assignment {
  /** Merchant pools and the chain's tiers with their targets, in the order they are filled. */
  candidates: readonly { pool: PoolId; target: number }[];
  /** Where a pod goes when all targets are met. */
  last: PoolId;
}

export interface Registered {
  podName: string;
  /**
   * `waiting`: it has more calls than the pool it belongs to allows; it moves when they have ended.
   * `removed`, `skipped`: it was idle and not ready, and was known before or not.
   * `replaced`: it took over the name, and calls that were given before anybody told us.
   * `unreadable`: a key of it is of a wrong type (`wrongKey`); it takes no new call, and nothing else was changed.
   */
  outcome: 'new' | 'known' | 'replaced' | 'moved' | 'waiting' | 'removed' | 'skipped' | 'unreadable';
  /** Empty where it has none. */
  pool: PoolId | '';
  lostCalls: string[];
  wrongKey?: string;
}

/** A pod that takes no new call until this key, which somebody has written as another type, is gone. */
export interface UnreadablePod {
  podName: string;
  key: string;
}

/** A pod that was blocked because it no longer reports. */
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

  /** An empty epoch is the word of the pod itself, not a leader's. */
  async register(
    epoch: string,
    pods: readonly PodRegistration[],
    assignment: Assignment,
  ): Promise<Registered[]> {
    const request = {
      candidates: assignment.candidates.map(({ pool, target }) => [pool, target]),
      last: assignment.last,
      pods: pods.map((pod) => ({
        name: pod.name,
        uid: pod.uid,
        pool: pod.pool ?? '',
        suspended: pod.suspended,
        idle_goes: pod.idleGoes ?? false,
        idle_stays: pod.idleStays ?? false,
        restarts: pod.restarts,
        started_at: pod.startedAt,
        ended: pod.ended ?? false,
        must_report: pod.mustReport,
        metadata: pod.metadata,
      })),
    };
    const rows = await this.#write('register', epoch, [this.reportGraceMs, JSON.stringify(request)]);
    return rows.map((row) => {
      const [podName = '', outcome, pool = '', ...lostCalls] = list(row).map(String);
      if (outcome === 'unreadable') return { podName, outcome, pool: '', lostCalls, wrongKey: pool };
      return { podName, outcome: outcome as Registered['outcome'], pool: pool as PoolId, lostCalls };
    });
  }

  /** The names of a pool's pods; one that comes or goes at that time may be missed or given. None where it cannot be read. */
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

  /** Live calls of each pod, or -1 for one that is not registered or cannot be read. */
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

  /**
   * Pods that the removal brake holds, and those of them whose removal an operator has confirmed. Where the key of the held
   * ones is of a wrong type, `ifUnreadable` is the answer.
   */
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

  /** Those of these pods that have live calls, or whose calls cannot be read. */
  async withCalls(pods: readonly string[]): Promise<string[]> {
    const { podCallsPrefix } = keysOf(this.connection.keyPrefix);
    const counts = await this.connection.command('removals', (client) =>
      Promise.all(pods.map((pod) => unlessWrongType(client.zcard(`${podCallsPrefix}${pod}`), 1))),
    );
    return pods.filter((_, i) => counts[i] !== 0);
  }

  /** Resolves to the number of pods that the leader will remove. */
  async confirmRemovals(by: string): Promise<number> {
    return Number(await this.connection.run('confirmRemovals', [by], 'confirm_removals'));
  }

  /** Every pod that has ever reported and is not removed: when it last did, and what it was registered with. */
  async reported(): Promise<{ name: string; silentMs: number; metadata: string | null }[]> {
    const keys = keysOf(this.connection.keyPrefix);
    const { nowMs, seen } = await this.connection.command('reported', async (client) => {
      // The score first: a report that comes in between makes a pod look younger, never older.
      // Of a wrong type it stays an error: an empty list would remove every pod.
      const seen = await client.zrange(keys.reported, '0', '-1', 'WITHSCORES');
      const [seconds, micros] = await client.time();
      return { nowMs: Number(seconds) * 1000 + Number(micros) / 1000, seen };
    });
    const names = seen.filter((_, i) => i % 2 === 0);
    const metadata =
      names.length === 0
        ? []
        : await this.connection.command('reported', (client) =>
            unlessWrongType(client.hmget(keys.podMetadata, ...names), []),
          );
    return names.map((name, i) => ({
      name,
      silentMs: nowMs - Number(seen[2 * i + 1]),
      metadata: metadata[i] ?? null,
    }));
  }

  /** Blocks silent pods, `batch` of them after the first `offset`; `left` of those stay as they are. */
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

  /** Gives at most `batch` pods calls again that have cooled off; resolves to how many those were. */
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
    const [next, lookedAt, callsEnded, podsPutBack, podsTakenOut, ...unreadable] = await this.#write(
      'sweep',
      epoch,
      args,
    );
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
