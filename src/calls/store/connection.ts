/**
 * The way to the store: one client for a single server, Sentinel or Cluster, and one method that runs a script.
 *
 * Promises: every command has a deadline; an error is an error, never an empty answer; nothing is sent again
 * behind the caller's back (a script that ran although its reply was lost would otherwise run twice); a flushed
 * script cache or a restarted server costs one extra round trip. While the connection is down a command waits
 * a short while for it, then fails; the client goes on connecting for ever.
 */
import { createHash } from 'node:crypto';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import type { Clock } from '../../clock.js';
import { AppError } from '../../errors.js';
import { scripts } from './scripts.generated.js';

export type ScriptName = keyof typeof scripts;
export type Reply = string | number | null | Reply[];
export type Client = Redis | Cluster;
/** `full`: Redis is out of memory and refused it. */
export type StoreOutcome = 'ok' | 'error' | 'full';

export interface ConnectionOptions {
  url: string;
  keyPrefix: string;
  commandTimeoutMs: number;
  clock: Clock;
  /** Told of every command: for metrics. */
  observe?: (operation: string, outcome: StoreOutcome, seconds: number) => void;
  /** Told when the connection comes and goes. */
  onState?: (state: 'up' | 'down', reason?: string) => void;
  /** Tests put their own time in, in microseconds; production uses the store's clock. */
  nowUs?: () => number;
  /** The simulation puts its own in: a client without a socket, whose time is the simulation's. */
  createClient?: (commandTimeoutMs: number | undefined) => Client;
}

const shas = Object.fromEntries(
  Object.entries(scripts).map(([name, text]) => [name, createHash('sha1').update(text).digest('hex')]),
) as Record<ScriptName, string>;

/** Redis 6.2 puts the error of a script behind the script's name, with the dash of the protocol. */
const outOfMemory = /(?:^|: )-?OOM\b/;
/** Replies that mean "not now" rather than "you are wrong". */
const notNow =
  /(?:^|: )-?(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|BUSY|TRYAGAIN|NOREPLICAS|MISCONF|NOAUTH|WRONGPASS|NOPERM|MOVED|ASK|UNBLOCKED)\b|The user executing the script can't run this command/;

/** Between the end of a client that nobody has closed and its next life. */
const revivalMs = 250;

/**
 * The keys that a script declares: the prefix, and on a Cluster a second name. Neither key exists. While a slot migrates,
 * a node answers TRYAGAIN to a command with two missing keys, so a script never runs against half of the keys.
 */
function declaredKeys(client: Client, keyPrefix: string): readonly string[] {
  return client instanceof Cluster ? [keyPrefix, `${keyPrefix}slot`] : [keyPrefix];
}

export class StoreConnection {
  readonly keyPrefix: string;
  readonly #client: Client;
  readonly #options: ConnectionOptions;
  #lastError: string;
  #offsetMs: number | undefined;
  #up = false;
  #closed = false;
  readonly #keys: readonly string[];
  #second: readonly [number, string] = [0, ''];

  constructor(options: ConnectionOptions) {
    this.#options = options;
    // A server without TLS does not answer the handshake, so there is no error to show.
    this.#lastError = options.url.startsWith('rediss:')
      ? 'no TLS connection yet (for a server without TLS, REDIS_URL begins with redis://)'
      : 'not connected yet';
    this.keyPrefix = options.keyPrefix;
    this.#client = createClient(options, options.commandTimeoutMs);
    this.#keys = declaredKeys(this.#client, options.keyPrefix);
    // Every request that meets a lost connection waits for `ready`.
    this.#client.setMaxListeners(0);
    this.#client.on('error', (error: Error) => {
      this.#lastError = describeError(error);
    });
    this.#client.on('ready', () => {
      this.#setState(true);
      this.#lastError = 'the connection was closed';
      // The first allocate needs to know the store's time; after a failover it may be another.
      this.#client.time().then(
        ([seconds, micros]) => this.learnTime(Number(seconds) * 1000 + Number(micros) / 1000),
        () => undefined,
      );
    });
    this.#client.on('close', () => this.#setState(false));
    // A Sentinel's word of a failover that comes while the client asks for the master ends the client for good.
    this.#client.on('end', () => {
      if (!this.#closed) options.clock.after(revivalMs, () => this.#connect(), { unref: true });
    });
    this.#connect();
  }

  #connect(): void {
    if (this.#closed) return;
    this.#client.connect().catch((error: Error) => {
      this.#lastError = describeError(error);
    });
  }

  /** A connection of its own for blocking reads: those must not stand in front of everybody else's commands. */
  blockingClient(): Client {
    const client = createClient(this.#options, undefined);
    // Its user sees the failed read; the main connection tells the reason.
    client.on('error', () => undefined);
    return client;
  }

  /** Runs one script; `args` follow the time override. Rejects with an AppError and nothing else. */
  async run(name: ScriptName, args: readonly (string | number)[], operation: string = name): Promise<Reply> {
    const { nowUs, clock } = this.#options;
    const now = nowUs ? String(nowUs()) : '';
    const start = clock.monotonic();
    try {
      if (this.#client.status !== 'ready') await this.#untilReady();
      let reply: Reply;
      try {
        reply = (await this.#client.evalsha(
          shas[name],
          this.#keys.length,
          ...this.#keys,
          now,
          ...args,
        )) as Reply;
      } catch (error) {
        if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
        reply = (await this.#client.eval(
          scripts[name],
          this.#keys.length,
          ...this.#keys,
          now,
          ...args,
        )) as Reply;
      }
      this.#observe(operation, 'ok', start);
      return reply;
    } catch (error) {
      this.#observe(operation, isFull(error) ? 'full' : 'error', start);
      throw this.#toAppError(operation, error);
    }
  }

  /** Runs plain commands under the same deadline and the same errors. */
  async command<T>(operation: string, send: (client: Client) => Promise<T>): Promise<T> {
    const start = this.#options.clock.monotonic();
    try {
      if (this.#client.status !== 'ready') await this.#untilReady();
      const reply = await send(this.#client);
      this.#observe(operation, 'ok', start);
      return reply;
    } catch (error) {
      this.#observe(operation, isFull(error) ? 'full' : 'error', start);
      throw this.#toAppError(operation, error);
    }
  }

  #observe(operation: string, outcome: StoreOutcome, startMs: number): void {
    const { observe, clock } = this.#options;
    observe?.(operation, outcome, (clock.monotonic() - startMs) / 1000);
  }

  /** One SCAN page of the server that holds our keys: on a Cluster, the node of the prefix's slot. */
  scan(cursor: string, pattern: string, count: number): Promise<[string, string[]]> {
    return this.command('scan', async (client) => {
      const script = "return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])";
      return (await client.eval(script, 1, this.keyPrefix, cursor, pattern, count)) as [string, string[]];
    });
  }

  /** Keeps the estimate of the store's clock: `storeNowMs` was read during the command that just returned. */
  learnTime(storeNowMs: number): void {
    this.#offsetMs = storeNowMs - this.#options.clock.monotonic();
  }

  /** The store's clock as far as it is known here, or undefined before the first answer. */
  estimateNowMs(): number | undefined {
    if (this.#options.nowUs) return undefined;
    return this.#offsetMs === undefined ? undefined : this.#offsetMs + this.#options.clock.monotonic();
  }

  /** The second it is at the store, as a number and in ISO 8601: here it is written once, in a script every time. */
  second(): readonly [second: number | '', iso: string] {
    const now = this.estimateNowMs();
    if (now === undefined) return ['', ''];
    const second = Math.floor(now / 1000);
    if (this.#second[0] !== second)
      this.#second = [second, new Date(second * 1000).toISOString().slice(0, 20)];
    return this.#second;
  }

  /** Now at the store in ISO 8601, as far as it is known here; empty before the first answer. */
  stamp(): string {
    const now = this.estimateNowMs();
    return now === undefined ? '' : new Date(now).toISOString();
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

  /** Half of the command's time: a blip passes unseen, and the caller still gets its answer in time. */
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
    if (!ready) throw new Error(this.#lastError);
  }

  #toAppError(operation: string, error: unknown): AppError {
    if (error instanceof AppError) return error;
    const message = describeError(error);
    if (isFull(error)) {
      return new AppError(
        'store_full',
        `Redis is out of memory (${operation}): nothing was changed; raise its maxmemory, or delete other data in it`,
        { retryAfterSeconds: 1, cause: error },
      );
    }
    const access = accessProblem(message);
    if (access !== undefined) {
      return new AppError('store_unavailable', access, { retryAfterSeconds: 1, cause: error });
    }
    if (error instanceof Error && error.name === 'ReplyError' && !notNow.test(error.message)) {
      return new AppError('internal', `the store refused ${operation}: ${message}`, { cause: error });
    }
    return new AppError('store_unavailable', `the store did not answer (${operation}): ${message}`, {
      retryAfterSeconds: 1,
      cause: error,
    });
  }
}

/** A reply, or `nothing` where the key was written by hand as another type: what it describes is then not known. */
export async function unlessWrongType<T>(reply: Promise<T>, nothing: T): Promise<T> {
  try {
    return await reply;
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith('WRONGTYPE')) throw error;
    return nothing;
  }
}

/** Redis answered, and refused to take more memory. */
function isFull(error: unknown): boolean {
  return error instanceof Error && error.name === 'ReplyError' && outOfMemory.test(error.message);
}

/** What to do about a password that is missing or wrong. Redis' own words are about its protocol. */
function accessProblem(message: string): string | undefined {
  if (/\bNOAUTH\b/.test(message)) {
    return 'the store requires a password (NOAUTH): set it in REDIS_URL, like redis://:PASSWORD@HOST:PORT or redis://USER:PASSWORD@HOST:PORT (characters such as @ : / must be percent-encoded)';
  }
  if (/\bWRONGPASS\b|invalid password/.test(message)) {
    return 'the store rejected the user or password in REDIS_URL (WRONGPASS): correct it (a password alone is written redis://:PASSWORD@HOST:PORT; characters such as @ : / must be percent-encoded)';
  }
  return undefined;
}

function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const inner = (error as { lastNodeError?: Error }).lastNodeError;
  if (inner) return describeError(inner);
  // An AggregateError (localhost as IPv4 and IPv6) has an empty message.
  const first = error instanceof AggregateError ? error.errors[0] : undefined;
  return first instanceof Error ? first.message : error.message || error.name;
}

interface Address {
  host: string;
  port: number;
}

/** `host:port,host:port` behind an optional `user:password@`, as Sentinel and Cluster addresses are written. */
function parseAddresses(
  rest: string,
  defaultPort: number,
): { auth: { username?: string; password?: string }; nodes: Address[] } {
  const at = rest.lastIndexOf('@');
  const nodes = rest
    .slice(at + 1)
    .split(',')
    .map((node) => {
      const url = new URL(`redis://${node}`);
      return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || defaultPort) };
    });
  if (at < 0) return { auth: {}, nodes };
  const url = new URL(`redis://${rest.slice(0, at)}@x`);
  return {
    auth: {
      ...(url.username ? { username: decodeURIComponent(url.username) } : {}),
      password: decodeURIComponent(url.password),
    },
    nodes,
  };
}

function createClient(options: ConnectionOptions, commandTimeout: number | undefined): Client {
  if (options.createClient) return options.createClient(commandTimeout);
  const { clock } = options;
  const retryDelay = (attempt: number) =>
    Math.min(2000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + clock.random() / 2);
  const common = {
    lazyConnect: true,
    connectTimeout: 5000,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: retryDelay,
    // A demoted master answers READONLY: connect anew and find the right one.
    reconnectOnError: (error: Error) => error.message.includes('READONLY'),
    connectionName: 'smart-router',
    // A machine that died says nothing: a connection that owes an answer for this long is replaced. Without it
    // the kernel keeps sending for about 15 minutes. A blocking read is answered every 5 s.
    socketTimeout: commandTimeout === undefined ? 15_000 : 2 * commandTimeout,
    ...(commandTimeout === undefined ? {} : { commandTimeout }),
  } satisfies RedisOptions;
  const special = /^redis\+(sentinel|cluster):\/\/([^/?]+)(?:\/([^?]*))?(?:\?(.*))?$/.exec(options.url);
  if (!special) {
    // A private certificate authority is made known as to any Node program: NODE_EXTRA_CA_CERTS.
    return new Redis(options.url, common);
  }
  const [, kind, hosts = '', path = '', query = ''] = special;
  const params = new URLSearchParams(query);
  const tls = params.get('tls') === 'true' ? { tls: {} } : {};
  if (kind === 'sentinel') {
    const { auth, nodes } = parseAddresses(hosts, 26379);
    const sentinelPassword = params.get('sentinel_password');
    return new Redis({
      ...common,
      ...auth,
      ...tls,
      sentinels: nodes,
      name: path,
      sentinelRetryStrategy: retryDelay,
      failoverDetector: true,
      ...(params.get('tls') === 'true' ? { enableTLSForSentinelMode: true, sentinelTLS: {} } : {}),
      ...(sentinelPassword ? { sentinelPassword } : {}),
    });
  }
  const { auth, nodes } = parseAddresses(hosts, 6379);
  return new Cluster(nodes, {
    lazyConnect: true,
    enableOfflineQueue: false,
    clusterRetryStrategy: retryDelay,
    redisOptions: { ...common, ...auth, ...tls },
    maxRedirections: 8,
  });
}
