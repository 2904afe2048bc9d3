/**
 * The connection to the store: one client for a single server, Sentinel or Cluster, and one method that runs a script.
 *
 * Guarantees: every command has a deadline; an error is never an empty reply; no command is resent (a script whose reply
 * was lost would run twice); a flushed script cache or a restarted server costs one extra round trip. While the
 * connection is down, a command waits for half of its deadline, then fails; the client keeps reconnecting.
 */
import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { Cluster, Command } from 'ioredis';
import { atEndOfTurn, type Clock } from '../../clock.js';
import { AppError } from '../../errors.js';
import { type Client, createClient } from './client.js';
import { keysOf } from './keys.js';
import { scripts } from './scripts.generated.js';

export type ScriptName = keyof typeof scripts;
export type Reply = string | number | null | Reply[];
export type { Client } from './client.js';
/** `full`: Redis refused the command at maxmemory. */
export type StoreOutcome = 'ok' | 'error' | 'full';

export interface ConnectionOptions {
  url: string;
  keyPrefix: string;
  commandTimeoutMs: number;
  clock: Clock;
  /** Called for every command, for metrics. */
  observe?: (operation: string, outcome: StoreOutcome, seconds: number) => void;
  /** Called when the connection is established or lost. */
  onState?: (state: 'up' | 'down', reason?: string) => void;
  /** Time for tests, in microseconds; production uses the store's clock. */
  nowUs?: () => number;
  /** The simulation's client: without a socket, on the simulation's time. */
  createClient?: (commandTimeoutMs: number | undefined) => Client;
}

const shas = Object.fromEntries(
  Object.entries(scripts).map(([name, text]) => [name, createHash('sha1').update(text).digest('hex')]),
) as Record<ScriptName, string>;

/** Redis 6.2 prefixes the error of a script with the script's name and keeps the dash of the protocol. */
const outOfMemory = /(?:^|: )-?OOM\b/;
/** Errors that a retry may solve, unlike those of a wrong command. */
const temporary =
  /(?:^|: )-?(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|BUSY|TRYAGAIN|NOREPLICAS|MISCONF|NOAUTH|WRONGPASS|NOPERM|MOVED|ASK|UNBLOCKED)\b|The user executing the script can't run this command/;

/** Before a client that ended without being closed connects again. */
const reconnectMs = 250;

/**
 * With fewer commands under way than this each is written at once: gathered, the router and the store would work in turns.
 */
const minUnderWay = 16;
/** The store begins with the first commands of a busy turn while the router still reads the other requests. */
const maxGathered = 8;

/**
 * The keys that a script declares: the prefix, which never exists, and on a Cluster a second key. While a slot migrates, a node
 * answers TRYAGAIN to a command with two keys of which one is missing, so a script never runs against half of the keys.
 */
function declaredKeys(client: Client, keyPrefix: string): readonly string[] {
  return client instanceof Cluster ? [keyPrefix, keysOf(keyPrefix).pools] : [keyPrefix];
}

export class StoreConnection {
  readonly keyPrefix: string;
  readonly #client: Client;
  readonly #options: ConnectionOptions;
  #lastError: string;
  #offsetMs: number | undefined;
  #up = false;
  #closed = false;
  #session = 0;
  /** False until the first script of this connection was sent. */
  #isOpen = false;
  #first: (() => void) | undefined;
  readonly #keys: readonly string[];
  /** Set until the end of a turn of the event loop that has sent commands. */
  #corked: Socket | undefined = undefined;
  /** Commands that wait in it. */
  #gathered = 0;
  /** Commands without a reply. */
  #underWay = 0;
  #second: readonly [number, string] = [0, ''];

  constructor(options: ConnectionOptions) {
    this.#options = options;
    // A server without TLS does not answer the handshake, so there is no error to show.
    this.#lastError = options.url.startsWith('rediss:')
      ? 'no TLS connection yet (for a server without TLS, REDIS_URL begins with redis://)'
      : 'not connected yet';
    this.keyPrefix = options.keyPrefix;
    this.#client = newClient(options, options.commandTimeoutMs);
    this.#keys = declaredKeys(this.#client, options.keyPrefix);
    // Every request waits for `ready` while the connection is down.
    this.#client.setMaxListeners(0);
    this.#client.on('error', this.#noteError);
    this.#client.on('ready', () => {
      this.#session += 1;
      this.#first?.();
      this.#isOpen = true;
      this.#setState(true);
      this.#lastError = 'the connection was closed';
      // The first allocate needs the store's time, which may differ after a failover.
      this.#client.time().then(
        ([seconds, micros]) => this.learnTime(Number(seconds) * 1000 + Number(micros) / 1000),
        () => undefined,
      );
    });
    this.#client.on('close', () => {
      this.#session += 1;
      this.#isOpen = false;
      this.#setState(false);
    });
    // A failover message from a Sentinel while the client looks up the master ends the client permanently.
    this.#client.on('end', () => {
      if (!this.#closed) options.clock.after(reconnectMs, () => this.#connect(), { unref: true });
    });
    this.#connect();
  }

  readonly #noteError = (error: Error): void => {
    this.#lastError = describeError(error);
  };

  #connect(): void {
    if (this.#closed) return;
    this.#client.connect().catch(this.#noteError);
  }

  /** A separate connection for blocking reads, which would delay all other commands. */
  blockingClient(): Client {
    const client = newClient(this.#options, undefined);
    // Its user sees the failed read; the main connection reports the reason.
    client.on('error', () => undefined);
    return client;
  }

  /** Runs one script; `args` start at ARGV[2]. Rejects only with an AppError. */
  run(name: ScriptName, args: readonly (string | number)[], operation: string = name): Promise<Reply> {
    const { nowUs } = this.#options;
    const given = [shas[name], String(this.#keys.length), ...this.#keys, nowUs ? String(nowUs()) : ''];
    for (const arg of args) given.push(String(arg));
    return this.command(operation, async (client) => {
      try {
        return await sendScript(client, 'evalsha', given);
      } catch (error) {
        if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
        return await sendScript(client, 'eval', [scripts[name], ...given.slice(1)]);
      }
    });
  }

  /**
   * Sends a script as the first command of every later connection. The server runs the commands of a connection in order, so
   * no other command of this router reaches a new master before it. With its text, because a new master may not have the
   * script. On a Cluster this is the first connection only: a later master of the slot is a new one without an event here.
   */
  runFirst(
    name: ScriptName,
    args: readonly (string | number)[],
    onReply: (reply: Promise<Reply>) => void,
  ): void {
    const { nowUs } = this.#options;
    const keys = this.#keys;
    this.#first = () =>
      onReply(
        this.#client.eval(
          scripts[name],
          keys.length,
          ...keys,
          nowUs ? String(nowUs()) : '',
          ...args,
        ) as Promise<Reply>,
      );
  }

  /** Runs plain commands with the same deadline and the same errors. */
  async command<T>(operation: string, send: (client: Client) => Promise<T>): Promise<T> {
    const start = this.#options.clock.monotonic();
    this.#underWay += 1;
    try {
      const { stream } = this.#client as { stream?: Socket | undefined };
      // After `disconnect` the client stays `ready` until its socket has closed.
      const canWrite = this.#client.status === 'ready' && stream?.writable !== false;
      if (!this.#isOpen || !canWrite) await this.#untilReady();
      if (this.#underWay >= minUnderWay) this.#gather();
      const reply = await send(this.#client);
      this.#observe(operation, 'ok', start);
      return reply;
    } catch (error) {
      this.#observe(operation, isFull(error) ? 'full' : 'error', start);
      throw this.#toAppError(operation, error);
    } finally {
      this.#underWay -= 1;
    }
  }

  /**
   * Writes the commands of one turn of the event loop together: a write costs more than the command in it, here and in the
   * store. Commands of a Cluster are written one by one: each node has a socket of its own.
   */
  #gather(): void {
    const { stream } = this.#client as { stream?: Socket | undefined };
    if (stream === undefined) return;
    if (this.#corked !== stream) {
      this.#corked = stream;
      this.#gathered = 0;
      stream.cork();
      atEndOfTurn(() => {
        // A new connection may have been made in this turn.
        if (this.#corked === stream) this.#corked = undefined;
        stream.uncork();
      });
    } else if (this.#gathered === maxGathered) {
      this.#gathered = 0;
      stream.uncork();
      stream.cork();
    }
    this.#gathered += 1;
  }

  #observe(operation: string, outcome: StoreOutcome, startMs: number): void {
    const { observe, clock } = this.#options;
    observe?.(operation, outcome, (clock.monotonic() - startMs) / 1000);
  }

  /** One SCAN page of the server that has our keys: in a Cluster, the node of the prefix's slot. */
  scan(cursor: string, pattern: string, count: number): Promise<[string, string[]]> {
    return this.command('scan', async (client) => {
      const script = "return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])";
      return (await client.eval(script, 1, this.keyPrefix, cursor, pattern, count)) as [string, string[]];
    });
  }

  /** Updates the estimate of the store's clock with a time from the command that just returned. */
  learnTime(storeNowMs: number): void {
    this.#offsetMs = storeNowMs - this.#options.clock.monotonic();
  }

  /** The estimated time of the store, or undefined before the first reply. */
  estimateNowMs(): number | undefined {
    if (this.#options.nowUs) return undefined;
    return this.#offsetMs === undefined ? undefined : this.#offsetMs + this.#options.clock.monotonic();
  }

  /** The current second of the store, as a number and in ISO 8601: formatted once here instead of in every script. */
  second(now = this.estimateNowMs()): readonly [second: number | '', iso: string] {
    if (now === undefined) return ['', ''];
    const second = Math.floor(now / 1000);
    if (this.#second[0] !== second)
      this.#second = [second, new Date(second * 1000).toISOString().slice(0, 20)];
    return this.#second;
  }

  /** The estimated time of the store in ISO 8601, or empty before the first reply. */
  stamp(): string {
    const now = this.estimateNowMs();
    if (now === undefined) return '';
    return `${this.second(now)[1]}${String(Math.floor(now % 1000)).padStart(3, '0')}Z`;
  }

  /** Another number after each loss and each start of the connection. */
  get session(): number {
    return this.#session;
  }

  /** Connects again, to the master of that moment. */
  reconnect(): void {
    if (this.#client.status === 'ready') this.#client.disconnect(true);
  }

  get clock(): Clock {
    return this.#options.clock;
  }

  close(): void {
    this.#closed = true;
    this.#client.disconnect();
  }

  #setState(up: boolean): void {
    if (this.#up === up || this.#closed) return;
    this.#up = up;
    this.#options.onState?.(up ? 'up' : 'down', up ? undefined : this.#lastError);
  }

  /** Waits for half of the deadline: a short interruption goes unnoticed, and the caller still gets its reply in time. */
  async #untilReady(): Promise<void> {
    const patienceMs = this.#options.commandTimeoutMs / 2;
    const ready = await new Promise<boolean>((resolve) => {
      const finish = (value: boolean) => {
        cancel();
        this.#client.off('ready', up);
        resolve(value);
      };
      const up = () => finish(true);
      const cancel = this.#options.clock.after(patienceMs, () => finish(false));
      this.#client.once('ready', up);
    });
    if (!ready) throw unavailable(this.#lastError, `cannot reach the store: ${this.#lastError}`);
  }

  #toAppError(operation: string, error: unknown): AppError {
    if (error instanceof AppError) return error;
    const message = describeError(error);
    if (isFull(error)) {
      return new AppError(
        'store_full',
        `Redis is out of memory (${operation}): nothing was changed; raise maxmemory or delete other data`,
        { retryAfterSeconds: 1, cause: error },
      );
    }
    if (error instanceof Error && error.name === 'ReplyError' && !temporary.test(error.message)) {
      return new AppError('internal', `the store refused ${operation}: ${message}`, { cause: error });
    }
    return unavailable(message, `the store did not answer (${operation}): ${message}`, error);
  }
}

/** The reply of a command, or `nothing` if the key has a wrong type, because an operator wrote it by hand. */
export async function unlessWrongType<T>(reply: Promise<T>, nothing: T): Promise<T> {
  try {
    return await reply;
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith('WRONGTYPE')) throw error;
    return nothing;
  }
}

/** The same as `client.evalsha(...args)`, which takes 5 us to check and convert 15 arguments that are strings already. */
function sendScript(client: Client, name: 'evalsha' | 'eval', args: string[]): Promise<Reply> {
  const command = new Command(name, [], { replyEncoding: 'utf8' });
  command.args = args;
  return client.sendCommand(command) as Promise<Reply>;
}

function isFull(error: unknown): boolean {
  return error instanceof Error && error.name === 'ReplyError' && outOfMemory.test(error.message);
}

function unavailable(reason: string, otherwise: string, cause?: unknown): AppError {
  const message = accessProblem(reason) ?? otherwise;
  return new AppError('store_unavailable', message, { retryAfterSeconds: 1, cause });
}

/** What to do about a missing or wrong password: the text of Redis is about its protocol. */
function accessProblem(message: string): string | undefined {
  if (/\bNOAUTH\b/.test(message)) {
    return 'store authentication failed (NOAUTH): set the password in REDIS_URL, like redis://:PASSWORD@HOST:PORT or redis://USER:PASSWORD@HOST:PORT (characters such as @ : / must be percent-encoded)';
  }
  if (/\bWRONGPASS\b|invalid password/.test(message)) {
    return 'store authentication failed (WRONGPASS): correct the user or password in REDIS_URL (a password alone is written redis://:PASSWORD@HOST:PORT; characters such as @ : / must be percent-encoded)';
  }
  return undefined;
}

function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const inner = (error as { lastNodeError?: Error }).lastNodeError;
  if (inner) return describeError(inner);
  // The message of an AggregateError (localhost as IPv4 and IPv6) is empty.
  const first = error instanceof AggregateError ? error.errors[0] : undefined;
  return first instanceof Error ? first.message : error.message || error.name;
}

function newClient(options: ConnectionOptions, commandTimeoutMs: number | undefined): Client {
  const { url, clock, createClient: simulated } = options;
  return simulated ? simulated(commandTimeoutMs) : createClient(url, clock, commandTimeoutMs);
}
