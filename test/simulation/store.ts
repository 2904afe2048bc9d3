/**
 * The store and the ways to it. A command travels to the store, is executed at once when it arrives, and its answer
 * travels back; each way may take long or lead nowhere. So a command may not have happened, may have happened without
 * its sender knowing, or may happen long after its sender has given up, which is all that can go wrong with a network.
 */
import { createHash } from 'node:crypto';
import { EventEmitter } from 'node:events';
import type { Client } from '../../src/calls/store/connection.js';
import { scripts } from '../../src/calls/store/scripts.generated.js';
import type { SeededRandom } from '../../src/demo/seeded-random.js';
import { type BrokenScript, brokenText } from '../support/broken-scripts.js';
import { type Reply, ReplyError } from './protocol.js';
import type { Process, VirtualTime } from './time.js';
import { type Snapshot, type VirtualConnection, VirtualValkey } from './valkey.js';

export interface Trouble {
  /** Chance that a command, or an answer, is lost; the connection stands. */
  loss: number;
  lossOfAnswers: number;
  /** Chance that one takes long, and how long. */
  slow: number;
  slowMs: number;
  cutOut: boolean;
  cutBack: boolean;
}
export const noTrouble: Trouble = {
  loss: 0,
  lossOfAnswers: 0,
  slow: 0,
  slowMs: 0,
  cutOut: false,
  cutBack: false,
};

export class Store {
  readonly #valkey: VirtualValkey;
  readonly #time: VirtualTime;
  readonly #links = new Set<StoreLink>();
  #admin: VirtualConnection;
  /** Added to its clock: a failover to another machine, or the clock was set. */
  skewMs = 0;
  /** How far its clock was set back, in all. */
  setBackMs = 0;
  isUp = true;
  isPaused = false;
  commands = 0;
  #held: (() => void)[] = [];
  readonly #broken = new Map<string, string>();
  onSetBack: (byMs: number) => void = () => {};
  onCommand: (args: readonly (string | number)[], reply: Reply | undefined) => void = () => {};

  private constructor(valkey: VirtualValkey, time: VirtualTime) {
    this.#valkey = valkey;
    this.#time = time;
    this.#admin = valkey.connect();
  }

  static async start(time: VirtualTime): Promise<Store> {
    let store: Store | undefined;
    const valkey = await VirtualValkey.start(() => (time.nowMs + (store?.skewMs ?? 0)) * 1000);
    store = new Store(valkey, time);
    return store;
  }

  end(): void {
    this.#valkey.end();
  }

  get nowMs(): number {
    return this.#time.nowMs + this.skewMs;
  }

  link(process: Process, random: SeededRandom): StoreLink {
    const link = new StoreLink(this, process, random);
    this.#links.add(link);
    return link;
  }

  connect(): VirtualConnection {
    return this.#valkey.connect();
  }

  /** For checks and faults: at once, past the network. */
  admin(...args: (string | number)[]): Reply {
    const reply = this.#admin.execute(args);
    if (reply === undefined) throw new Error(`${args[0]} has no answer`);
    return reply;
  }

  /** Replaces a script for all clients from now on. */
  breakScript(control: BrokenScript): void {
    const text = scripts[control.script];
    const broken = brokenText(control);
    this.#broken.set(text, broken);
    this.#broken.set(createHash('sha1').update(text).digest('hex'), broken);
  }

  execute(connection: VirtualConnection, args: readonly (string | number)[]): Reply | undefined {
    this.#valkey.tick();
    this.commands += 1;
    const broken = this.#broken.size > 0 ? this.#broken.get(String(args[1])) : undefined;
    const reply = connection.execute(broken === undefined ? args : ['eval', broken, ...args.slice(2)]);
    this.onCommand(args, reply);
    return reply;
  }

  /** Runs `work` at once, or after a pause of the store. */
  whenItRuns(work: () => void): void {
    if (this.isPaused) this.#held.push(work);
    else work();
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
    for (const work of this.#held.splice(0)) work();
  }

  stop(): void {
    this.isUp = false;
    this.#held = [];
    for (const link of this.#links) link.reset();
  }

  /** Back, with everything, or empty. */
  start(isEmpty: boolean): void {
    if (isEmpty) this.admin('FLUSHALL');
    this.admin('SCRIPT', 'FLUSH');
    this.isUp = true;
    this.isPaused = false;
  }

  remember(): Snapshot {
    return this.#valkey.snapshot();
  }

  /** A replica without the writes after `then` takes over, on a machine with another clock. */
  failOver(then: Snapshot, skewMs: number): void {
    for (const link of this.#links) link.reset();
    this.#valkey.restore(then);
    this.setClock(skewMs - this.skewMs);
    this.#admin = this.#valkey.connect();
    // The promotion of a replica changes the replication id.
    this.admin('REPLICAOF', '127.0.0.1', 1);
    this.admin('REPLICAOF', 'NO', 'ONE');
  }

  /** Its clock is set, and nothing else happens to it. */
  setClock(byMs: number): void {
    if (byMs < 0) {
      this.onSetBack(-byMs);
      this.setBackMs -= byMs;
    }
    this.skewMs += byMs;
  }

  resetConnections(): void {
    for (const link of this.#links) link.reset();
  }
}

/** The way of one process to the store. */
export class StoreLink {
  trouble: Trouble = noTrouble;
  readonly #clients = new Set<SimulatedClient>();

  constructor(
    readonly store: Store,
    readonly process: Process,
    readonly random: SeededRandom,
  ) {}

  client(commandTimeoutMs: number | undefined): Client {
    const client = new SimulatedClient(this, commandTimeoutMs ?? 15_000);
    this.#clients.add(client);
    // Every other method is a command.
    return new Proxy(client, {
      get(target, name) {
        const own = Reflect.get(target, name, target);
        if (name in target || typeof name !== 'string')
          return typeof own === 'function' ? own.bind(target) : own;
        return (...args: (string | number)[]) => target.send([name, ...args]);
      },
    }) as unknown as Client;
  }

  reset(): void {
    for (const client of this.#clients) client.reset('read ECONNRESET');
  }

  /** How long one way takes, or undefined: nothing arrives. */
  way(direction: 'out' | 'back'): number | undefined {
    const { loss, lossOfAnswers, slow, slowMs, cutOut, cutBack } = this.trouble;
    const { random } = this;
    const usualMs = 0.1 + random.next() * 0.9;
    const isLost = random.next() < (direction === 'out' ? loss : lossOfAnswers);
    const isSlow = random.next() < slow;
    if (isLost || (direction === 'out' ? cutOut : cutBack)) return undefined;
    return isSlow ? usualMs + random.next() * slowMs : usualMs;
  }
}

interface Pending {
  reject(error: Error): void;
}

/** As much of the real client as the router uses: its states, its deadlines, its errors. */
class SimulatedClient extends EventEmitter {
  status: 'wait' | 'connecting' | 'ready' | 'reconnecting' | 'end' = 'wait';
  /** It has no socket. */
  readonly stream = undefined;
  #connection: VirtualConnection | undefined;
  #pending = new Set<Pending>();
  #life = 0;
  /** A connection keeps the order, in both directions. */
  #arrivesMs = 0;
  #answeredMs = 0;
  #attempts = 0;

  constructor(
    readonly link: StoreLink,
    readonly commandTimeoutMs: number,
  ) {
    super();
    this.setMaxListeners(0);
  }

  async connect(): Promise<void> {
    if (this.status === 'end') throw new Error('Connection is closed.');
    this.status = 'connecting';
    const { link } = this;
    const there = link.way('out');
    const back = link.way('back');
    const { clock } = link.process;
    if (there === undefined || back === undefined) await clock.sleep(5000);
    else await clock.sleep(there + back);
    if ((this.status as string) === 'end') return;
    if (there === undefined || back === undefined || !link.store.isUp) {
      this.emit('error', new Error(link.store.isUp ? 'connect ETIMEDOUT' : 'connect ECONNREFUSED'));
      this.#again();
      return;
    }
    this.#connection = link.store.connect();
    this.status = 'ready';
    this.#attempts = 0;
    this.#life += 1;
    this.emit('ready');
  }

  disconnect(): void {
    this.status = 'end';
    this.reset('Connection is closed.');
  }

  reset(reason: string): void {
    this.#life += 1;
    this.#connection?.close();
    this.#connection = undefined;
    const wasReady = this.status === 'ready';
    const pending = [...this.#pending];
    this.#pending.clear();
    this.link.process.enter(() => {
      for (const { reject } of pending) reject(new Error(reason));
      if (!wasReady) return;
      this.emit('close');
      this.#again();
    });
    if (wasReady) this.status = 'reconnecting';
  }

  sendCommand({ name, args }: { name: string; args: string[] }): Promise<unknown> {
    return this.send([name, ...args]);
  }

  send(args: readonly (string | number)[]): Promise<unknown> {
    const { link } = this;
    const { clock, time } = { clock: link.process.clock, time: link.process.time };
    const connection = this.#connection;
    if (this.status !== 'ready' || !connection)
      return Promise.reject(new Error("Stream isn't writeable and enableOfflineQueue options is false"));
    return new Promise((resolve, reject) => {
      const life = this.#life;
      const pending: Pending = {
        reject: (error) => {
          stopTimer();
          reject(error);
        },
      };
      this.#pending.add(pending);
      const stopTimer = clock.after(this.commandTimeoutMs, () => {
        if (!this.#pending.delete(pending)) return;
        reject(new Error('Command timed out'));
        // A connection that owes an answer for twice as long is replaced.
        clock.after(this.commandTimeoutMs, () => {
          if (life === this.#life) this.reset('Socket timeout.');
        });
      });
      const out = link.way('out');
      if (out === undefined) return;
      this.#arrivesMs = Math.max(this.#arrivesMs, time.nowMs + out);
      time.after(this.#arrivesMs - time.nowMs, () =>
        link.store.whenItRuns(() => {
          // A request that had not arrived when its connection broke is lost.
          if (life !== this.#life || !link.store.isUp) return;
          const reply = link.store.execute(connection, args);
          const back = link.way('back');
          if (back === undefined || reply === undefined) return;
          this.#answeredMs = Math.max(this.#answeredMs, time.nowMs + back);
          time.after(this.#answeredMs - time.nowMs, () =>
            link.process.enter(() => {
              if (life !== this.#life || !this.#pending.delete(pending)) return;
              stopTimer();
              if (reply instanceof ReplyError) reject(reply);
              else resolve(shaped(args, reply));
            }),
          );
        }),
      );
    });
  }

  #again(): void {
    if (this.status === 'end') return;
    this.status = 'reconnecting';
    this.#attempts += 1;
    const { clock } = this.link.process;
    const delayMs = Math.min(2000, 50 * 2 ** Math.min(this.#attempts, 6)) * (0.5 + clock.random() / 2);
    clock.after(delayMs, () => void this.connect());
  }
}

/** As the real client gives it: a hash is an object. */
function shaped(args: readonly (string | number)[], reply: Reply): unknown {
  if (String(args[0]).toLowerCase() !== 'hgetall' || !Array.isArray(reply)) return reply;
  const object: Record<string, string> = {};
  for (let i = 0; i < reply.length; i += 2) object[String(reply[i])] = String(reply[i + 1]);
  return object;
}
