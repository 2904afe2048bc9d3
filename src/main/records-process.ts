/**
 * The record plane as a router has it: a process of its own, so that no handler and no parser can block calls, use up
 * their memory or end their process. A thread would share libuv's four threads (name lookups, zlib, crypto), a native
 * crash and `process.exit` with the calls.
 *
 * The process (records-child.ts) is started with the router and ends with it. One that ends by itself is logged, counted
 * and started again after 1, 2, 4 ... 30 s; its records are requeued as those of any dead worker. One whose event loop is
 * blocked shows as down after 10 s. It is killed when every record it has begun must be past its timeout and the grace
 * of the recovery: by then nothing it could still do counts. `stop` gives it SHUTDOWN_TIMEOUT, then kills it.
 *
 * What crosses is narrow: the events of RecordsListener, a state four times a second, operations of the desk by name.
 * At most 64 operations wait for an answer; more are refused. Handlers can reach the channel, so every message is
 * checked: after an invalid one the process is killed and started again.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../embedded/postgres.js';
import { AppError, ConfigError, messageOf } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import { defaultBounds } from '../records/bounds.js';
import type { RecordGauges } from '../records/metrics.js';
import { RecordsChannel } from './records-channel.js';
import {
  type DeskCall,
  type FromProcess,
  type RecordsState,
  type Report,
  readMessage,
  receivedError,
  type ToProcess,
} from './records-messages.js';
import type {
  RecordsConfig,
  RecordsDesk,
  RecordsParts,
  RecordsPlane,
  RecordsStatus,
} from './records-plane.js';

/** Through `dist`, also from the sources: a process of its own cannot run TypeScript. */
const entry = fileURLToPath(new URL('../../dist/main/records-child.js', import.meta.url));
/** How long a start waits for the workflows to be read. A module that hangs must not keep calls from being served. */
const openPatienceMs = 30_000;
const mostCalls = 64;
const silentAfterSeconds = 10;
/** Loading modules is all that it does before it has opened. */
const openLimitSeconds = 60;
const lastMomentMs = 500;

type Parts = Omit<RecordsParts, 'companions'>;

/** Resolves when the workflows have been read; throws a ConfigError for what is wrong with them. */
export async function startRecordsProcess(config: RecordsConfig, parts: Parts): Promise<RecordsPlane> {
  const { clock, log } = parts;
  const { databaseUrl, databaseFolder: folder } = config;
  // The router's own child: a records process that crashes must not take a temporary database with it.
  const engine =
    databaseUrl === 'embedded'
      ? await startEmbeddedPostgres({
          ...(folder === undefined ? {} : { folder }),
          clock,
          log: (line) => log.debug({ line }, 'embedded PostgreSQL'),
          onCrash: (error) =>
            log.fatal({ err: error }, 'the embedded database has ended: restart the router'),
        })
      : undefined;
  const records = new RecordsProcess(
    engine ? { ...config, databaseUrl: engine.url, isOwnDatabase: true } : config,
    parts,
    engine,
  );
  await records.open();
  return records;
}

class RecordsProcess implements RecordsPlane {
  readonly #config: RecordsConfig;
  readonly #parts: Parts;
  readonly #loop: SupervisedLoop;
  readonly #engine: EmbeddedPostgres | undefined;
  readonly #calls = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #lastCall = 0;
  #channel: RecordsChannel | undefined;
  /** The last one, also of a process that has ended. */
  #state: RecordsState | undefined;
  #isOpen = false;
  #isStarted = false;
  /** Why the process ended or is about to, where its exit code does not say it. */
  #reason: Error | undefined;
  /** Ticks, not time: a router that was paused has reports to read before it may judge. */
  #silentSeconds = 0;
  #silentLimitSeconds = openLimitSeconds;
  #settleFirst = (_refused?: Error) => {};

  constructor(config: RecordsConfig, parts: Parts, engine: EmbeddedPostgres | undefined) {
    const { clock, log, listener } = parts;
    this.#engine = engine;
    this.#config = config;
    this.#parts = parts;
    this.#loop = new SupervisedLoop({
      name: 'records-process',
      intervalMs: 0,
      clock,
      log,
      runOnce: (signal, alive) => this.#run(signal, alive),
      onCrash: () => listener.loopCrashed?.('records-process'),
    });
  }

  async open(): Promise<void> {
    const { clock } = this.#parts;
    const patience = new AbortController();
    const first = new Promise<void>((resolve, reject) => {
      this.#settleFirst = (refused) => (refused ? reject(refused) : resolve());
    });
    this.#loop.start();
    try {
      await Promise.race([first, this.#loop.firstRound, clock.sleep(openPatienceMs, patience.signal)]);
    } catch (error) {
      await this.stop();
      throw error;
    } finally {
      patience.abort();
      this.#settleFirst = () => {};
    }
  }

  start(): void {
    this.#isStarted = true;
    if (this.#isOpen) this.#send({ type: 'start' });
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.#engine?.stop();
  }

  get loops(): LoopState[] {
    const inside = this.#state?.loops ?? [];
    return [
      this.#loop.state,
      ...(this.#down === undefined ? inside : inside.map((loop) => ({ ...loop, running: false }))),
    ];
  }

  status(): RecordsStatus {
    const error = this.#down;
    const known = this.#state?.status;
    if (error === undefined && known) return known;
    const workflows = known?.workflows ?? [];
    return {
      database: 'down',
      paused: false,
      braked: false,
      cleanup: this.#config.zombieCleanupEnabled,
      error: error ?? null,
      workflows: workflows.map(({ name }) => ({ name, stuck: null, oldest_stuck_seconds: null })),
    };
  }

  gauges(): RecordGauges {
    if (this.#down === undefined && this.#state) return this.#state.gauges;
    return { isUp: false, isPaused: false, isBraked: false, stuck: undefined };
  }

  desk(): RecordsDesk {
    const call =
      <K extends DeskCall>(name: K) =>
      (...args: Parameters<RecordsDesk[K]>) =>
        this.#call(name, args) as ReturnType<RecordsDesk[K]>;
    return {
      numbers: call('numbers'),
      look: call('look'),
      failed: call('failed'),
      recent: call('recent'),
      reset: call('reset'),
      retry: call('retry'),
    };
  }

  /** Why records are not processed, as far as the process itself is the reason. */
  get #down(): string | undefined {
    if (!this.#isOpen) return this.#loop.state.last_error ?? 'the records process is starting';
    if (this.#silentSeconds < silentAfterSeconds) return undefined;
    return `the records process has not responded for ${this.#silentSeconds} s: a handler blocks its event loop`;
  }

  async #call(name: DeskCall, args: unknown[]): Promise<unknown> {
    if (!this.#isOpen) throw unavailable(this.#down ?? 'the records process has ended');
    if (this.#calls.size >= mostCalls)
      throw unavailable(`the records process has ${mostCalls} requests to answer already`);
    this.#lastCall += 1;
    const id = this.#lastCall;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#send({ type: 'call', id, name, args });
    });
  }

  /** One life of the process. Resolves when it was stopped, throws when it ended by itself. */
  async #run(signal: AbortSignal, alive: (counts: Record<string, number>) => void) {
    const { clock, log } = this.#parts;
    const { recordsHeapMb, shutdownTimeoutMs } = this.#config;
    this.#silentSeconds = 0;
    this.#silentLimitSeconds = openLimitSeconds;
    const child = spawn(process.execPath, [`--max-old-space-size=${recordsHeapMb}`, entry], {
      // The channel, and a pipe that is never written to: it breaks when this process ends.
      stdio: ['ignore', 'inherit', 'inherit', 'pipe', 'pipe'],
    });
    const ended = endOf(child);
    const channel = new RecordsChannel(
      child.stdio[3] as Duplex,
      (message) => {
        this.#silentSeconds = 0;
        this.#hear(readMessage(message));
        alive({ pid: child.pid ?? 0, memory_mb: this.#state?.memoryMb ?? 0 });
      },
      (error) => {
        this.#reason = new Error(
          `the records process sent an invalid message and was killed: ${messageOf(error)}`,
        );
        channel.close();
        child.kill('SIGKILL');
      },
    );
    this.#channel = channel;
    log.info({ pid: child.pid, heap_mb: recordsHeapMb }, 'records run in a process of their own');
    this.#send({ type: 'open', config: this.#config });
    let cancelKill = () => {};
    const stop = () => {
      this.#send({ type: 'stop' });
      cancelKill = clock.after(shutdownTimeoutMs + lastMomentMs, () => {
        log.warn(
          { pid: child.pid },
          'the records process did not stop in time and is killed; its records are requeued',
        );
        child.kill('SIGKILL');
      });
    };
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
    const how = await this.#watch(child, channel, ended);
    signal.removeEventListener('abort', stop);
    cancelKill();
    this.#ended(how);
    if (signal.aborted) return {};
    const reason = this.#reason;
    this.#reason = undefined;
    throw reason ?? new Error(`the records process ended with ${how}`);
  }

  async #watch(child: ChildProcess, channel: RecordsChannel, ended: Promise<string>): Promise<string> {
    const { clock, log } = this.#parts;
    const over = new AbortController();
    void ended.then(() => over.abort());
    while (!over.signal.aborted) {
      await clock.sleep(1000, over.signal);
      this.#silentSeconds += 1;
      if (this.#silentSeconds !== this.#silentLimitSeconds) continue;
      log.error(
        { pid: child.pid, seconds: this.#silentSeconds },
        'the records process does not respond and is killed',
      );
      child.kill('SIGKILL');
    }
    // Its last messages are read first. A process that it started may keep the channel open.
    const patience = new AbortController();
    await Promise.race([channel.closed, clock.sleep(1000, patience.signal)]);
    patience.abort();
    channel.close();
    return ended;
  }

  #ended(how: string): void {
    this.#channel = undefined;
    this.#isOpen = false;
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const { reject } of calls) reject(unavailable(`the records process ended with ${how}`));
  }

  #hear(message: FromProcess): void {
    if (message.type === 'opened') this.#opened(message.longestTimeoutMs);
    else if (message.type === 'refused') {
      this.#reason = receivedError(message.error);
      if (this.#reason instanceof ConfigError) this.#settleFirst(this.#reason);
    } else if (message.type === 'report') this.#hearReport(message);
    else if (message.type === 'answer') this.#take(message.id)?.resolve(message.value);
    else this.#take(message.id)?.reject(receivedError(message.error));
  }

  #opened(longestTimeoutMs: number): void {
    this.#isOpen = true;
    this.#silentLimitSeconds = Math.ceil((longestTimeoutMs + defaultBounds.timeoutGraceMs) / 1000);
    if (this.#isStarted) this.#send({ type: 'start' });
  }

  #hearReport({ state, events, lines, dropped }: Report): void {
    const { log, listener } = this.#parts;
    this.#state = state ?? this.#state;
    if (state) this.#settleFirst();
    for (const [name, args] of events)
      (listener[name] as ((...all: unknown[]) => void) | undefined)?.(...args);
    for (const line of lines) {
      const { level, time: _, msg, ...fields } = JSON.parse(line);
      if (!Object.hasOwn(log.levels.values, level)) throw new Error('a log line has an unknown level');
      log[level as 'info'](fields, msg);
    }
    if (dropped > 0)
      log.warn(
        { dropped },
        'the records process had more to report than fits; counts of records are too low',
      );
  }

  #take(id: number) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    return call;
  }

  /** A process that has ended takes nothing; its end is dealt with where it is waited for. */
  #send(message: ToProcess): void {
    void this.#channel?.send(message);
  }
}

function unavailable(reason: string): AppError {
  return new AppError('database_unavailable', `records cannot be reached: ${reason}`, {
    retryAfterSeconds: 5,
  });
}

/** Resolves to how it ended. */
function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('exit', (code, signal) =>
      resolve(
        signal === 'SIGABRT' ? 'SIGABRT: out of memory? See RECORDS_HEAP_MB' : (signal ?? `code ${code}`),
      ),
    );
    child.on('error', (error) => {
      if (child.pid === undefined) resolve(error.message);
    });
  });
}
