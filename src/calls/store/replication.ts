/**
 * Waits until replicas have a write (REDIS_WAIT_REPLICAS).
 *
 * WAIT counts only the writes of its own connection, blocks that connection and cannot run in a script. So a router has one
 * connection for it. A batch is one small write, WAIT, and the replication id, in one pipeline. Replication is ordered: a
 * replica that has the small write has every earlier write of that master. One batch is in flight; writes that end during it
 * share the next one, so the load does not change the number of batches per second.
 *
 * Guarantee: a write is confirmed only if the master that ran it also answered the WAIT, and was a master all the time in
 * between. A master gets a new replication id when it starts and when it is promoted, and no id is used twice. So the id that
 * the main connection read before the write must be the one that this connection reads after the WAIT, and the main
 * connection must not have been replaced during the write. On a Cluster the client may replace a connection to a node unseen;
 * the ids still differ after a failover.
 *
 * A planned failover promotes one replica while another still follows the old master and confirms its writes. So every healthy
 * replica must have a write. If one of them no longer has, it was promoted or it is lost: for 5 s no write is confirmed, and by
 * then the router follows the new master. After that, `replicas` of the others are enough.
 *
 * Failure modes: every failure counts as unconfirmed; the write itself stays. A replica that is attached to a master without
 * replicas changes the id too: the writes of one batch count as unconfirmed.
 */
import type { Clock } from '../../clock.js';
import type { StoreConnection } from './connection.js';
import { keysOf } from './keys.js';

/**
 * `timeout`: too few replicas had it in time. `failover`: another master answered the WAIT. `replica_left`: a
 * healthy replica did not have it, because it was promoted or is lost.
 */
export const confirmationOutcomes = ['confirmed', 'timeout', 'failover', 'replica_left', 'error'] as const;
export type ConfirmationOutcome = (typeof confirmationOutcomes)[number];

export interface ReplicationOptions {
  /** The connection that sends the writes. */
  main: StoreConnection;
  /** A connection to the same store, for WAIT only. */
  own: StoreConnection;
  replicas: number;
  timeoutMs: number;
  clock: Clock;
  /** Called for every batch; `reason` is the text of an error. */
  onOutcome?: (outcome: ConfirmationOutcome, writes: number, reason?: string) => void;
}

/** The master that a session of the main connection talks to. */
export interface Master {
  readonly session: number;
  readonly replicationId: string;
}

interface Write {
  master: Master;
  done(isConfirmed: boolean): void;
}

/** `isStale`: the connection may be to a server that is hung or no longer the master. */
type Answer =
  | { replicas: number; healthy: number; replicationId: string }
  | { error: string; isStale: boolean };

const probeTtlMs = 60_000;
/** A Sentinel makes the other replicas follow the promoted one within about two seconds. */
const distrustMs = 5000;

export class Replication {
  readonly #options: ReplicationOptions;
  readonly #probeKey: string;
  #master: Master | undefined;
  #reading: Promise<Master> | undefined;
  #next: Write[] = [];
  #isWaiting = false;
  /** The healthy replicas of a master, and since when fewer of them have the writes. */
  #healthy = { of: '', replicas: 0, fewerSinceMs: 0 };

  constructor(options: ReplicationOptions) {
    this.#options = options;
    this.#probeKey = keysOf(options.own.keyPrefix).replication;
  }

  close(): void {
    this.#options.own.close();
  }

  /** The master that a write will run on. Call it before the write. Rejects if the store does not answer. */
  master(): Master | Promise<Master> {
    if (this.#master?.session === this.#options.main.session) return this.#master;
    this.#reading ??= this.#readMaster().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readMaster(): Promise<Master> {
    const { main } = this.#options;
    let session = 0;
    const { replicationId, healthy } = await main.command('replication_id', async (client) => {
      session = main.session;
      // In a script, because a Cluster client sends a plain INFO to any node.
      const info = await client.eval("return redis.call('INFO', 'replication')", 1, main.keyPrefix);
      return replicationOf(info);
    });
    if (this.#healthy.of !== replicationId)
      this.#healthy = { of: replicationId, replicas: healthy, fewerSinceMs: 0 };
    this.#master = { session, replicationId };
    return this.#master;
  }

  /** Whether enough replicas have the write that has just been answered. Never rejects. */
  confirm(master: Master): Promise<boolean> {
    if (master.session !== this.#options.main.session) {
      this.#options.onOutcome?.('failover', 1);
      return Promise.resolve(false);
    }
    return new Promise((done) => {
      this.#next.push({ master, done });
      if (!this.#isWaiting) void this.#runBatches();
    });
  }

  async #runBatches(): Promise<void> {
    const { own, replicas, onOutcome } = this.#options;
    this.#isWaiting = true;
    while (this.#next.length > 0) {
      const batch = this.#next;
      this.#next = [];
      const answer = await this.#inTime(this.#wait());
      const hasLeft = this.#hasReplicaLeft(answer);
      const outcomeOf = ({ master }: Write): ConfirmationOutcome => {
        if ('error' in answer) return 'error';
        if (answer.replicationId !== master.replicationId) return 'failover';
        if (answer.replicas < replicas) return 'timeout';
        return hasLeft ? 'replica_left' : 'confirmed';
      };
      const outcomes = batch.map(outcomeOf);
      for (const outcome of new Set(outcomes)) {
        const writes = outcomes.filter((one) => one === outcome).length;
        onOutcome?.(outcome, writes, 'error' in answer ? answer.error : undefined);
      }
      // Both connections may be the wrong one: each looks for the master again.
      if (outcomes.includes('failover')) this.#master = undefined;
      if (outcomes.includes('failover') || ('error' in answer && answer.isStale)) own.reconnect();
      for (const [index, { done }] of batch.entries()) done(outcomes[index] === 'confirmed');
    }
    this.#isWaiting = false;
  }

  #hasReplicaLeft(answer: Answer): boolean {
    if ('error' in answer) return false;
    const nowMs = this.#options.clock.monotonic();
    const { of, replicas, fewerSinceMs } = this.#healthy;
    const isFewer = answer.replicationId === of && answer.replicas < replicas;
    if (!isFewer || (fewerSinceMs > 0 && nowMs - fewerSinceMs > distrustMs)) {
      this.#healthy = { of: answer.replicationId, replicas: answer.healthy, fewerSinceMs: 0 };
      return false;
    }
    if (fewerSinceMs === 0) this.#healthy.fewerSinceMs = nowMs;
    return true;
  }

  /** A server that does not answer has not started the timeout of WAIT: as long again, for the way there and back. */
  async #inTime(answer: Promise<Answer>): Promise<Answer> {
    const { clock, timeoutMs } = this.#options;
    let cancel = () => {};
    const late = new Promise<Answer>((resolve) => {
      const error = `no reply to WAIT within ${2 * timeoutMs} ms`;
      cancel = clock.after(2 * timeoutMs, () => resolve({ error, isStale: true }));
    });
    const first = await Promise.race([answer, late]);
    cancel();
    return first;
  }

  /** Never rejects. */
  async #wait(): Promise<Answer> {
    const { own, replicas, timeoutMs } = this.#options;
    try {
      return await own.command('wait', async (client) => {
        // On a Cluster, the first key decides which node gets the whole pipeline.
        const pipeline = client.pipeline().set(this.#probeKey, '', 'PX', probeTtlMs);
        const asked = Math.max(replicas, this.#healthy.replicas);
        const replies = await pipeline.wait(asked, timeoutMs).info('replication').exec();
        const failure = replies?.find(([error]) => error !== null)?.[0];
        if (failure) throw failure;
        const [, waited, info] = replies?.map(([, reply]) => reply) ?? [];
        return { replicas: Number(waited), ...replicationOf(info) };
      });
    } catch (error) {
      const { message } = error as Error;
      // A plain command would follow the redirection; a pipeline does not.
      return { error: message, isStale: message.includes('MOVED') };
    }
  }
}

/** A replica is healthy if it follows and has answered in the last two seconds. */
function replicationOf(info: unknown): { replicationId: string; healthy: number } {
  const replicationId = /^master_replid:(\w+)/m.exec(String(info))?.[1];
  if (replicationId === undefined)
    throw new Error('the store does not say its replication id (INFO replication)');
  const healthy = [...String(info).matchAll(/^slave\d+:.*state=online.*,lag=[0-2]\b/gm)].length;
  return { replicationId, healthy };
}
