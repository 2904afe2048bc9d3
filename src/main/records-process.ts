/**
 * Runs the record plane of a router in its own process, so that no handler and no parser can block calls, use up their
 * memory or end their process. A thread would share libuv's four threads (name lookups, zlib, crypto), a native crash and
 * `process.exit` with the calls.
 *
 * The process (records-child.ts) starts and ends with the router. If it crashes, that is logged and counted, and it is
 * started again after 1, 2, 4 ... 30 s; its records are requeued like those of any dead worker. If its event loop is
 * blocked, it shows as down after 10 s. It is killed when every record it has started must be past its timeout and the
 * grace of the recovery: then nothing it could still do counts. `stop` gives it SHUTDOWN_TIMEOUT, then kills it.
 *
 * Only data crosses: the events of RecordsListener, a state four times a second, operations by name. At most 64
 * operations wait for an answer; more are rejected. Handlers can reach the channel, so every message is checked: after
 * an invalid one the process is killed and started again.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../embedded/postgres.js';
import { ConfigError, messageOf } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import {
  type OperationName,
  operationNames,
  type RecordsStatus,
  type RemoteOperations,
} from '../records/admin.js';
import type { RecordGauges } from '../records/metrics.js';
import { defaultBounds } from '../records/workflow.js';
import { RecordsChannel } from './records-channel.js';
import {
  checkLabels,
  type FromProcess,
  type RecordsState,
  type Report,
  readMessage,
  receivedError,
  recordsUnavailable,
  type ToProcess,
} from './records-messages.js';
import type { RecordsConfig, RecordsParts, RecordsPlane } from './records-plane.js';

/** From `dist`, also when the router runs from the sources: Node cannot run TypeScript. */
/** Per second. A handler must not be able to block calls by flooding the channel. */
const channelLimits = { messages: 1000, bytes: 32 * 1024 ** 2 };
const entry = fileURLToPath(new URL('../../dist/main/records-child.js', import.meta.url));
/** How long a start waits until the workflows are loaded: a module that hangs must not delay calls. */
const openTimeoutMs = 30_000;
const maxCalls = 64;
const silentAfterSeconds = 10;
/** Before it has opened, it only loads modules. */
const openLimitSeconds = 60;
const killDelayMs = 500;

/** Starts the embedded database, if it is wanted. A child of the router: it must outlive a crash of the records process. */
export async function openDatabase(
  { databaseUrl, databaseFolder: folder }: RecordsConfig,
  { clock, log }: Pick<RecordsParts, 'clock' | 'log'>,
): Promise<EmbeddedPostgres | undefined> {
  if (databaseUrl !== 'embedded') return undefined;
  return startEmbeddedPostgres({
    ...(folder === undefined ? {} : { folder }),
    clock,
    log: (line) => log.debug({ line }, 'embedded PostgreSQL'),
    onCrash: (error) => log.fatal({ err: error }, 'embedded database ended; restart the router'),
  });
}

/** Resolves when the workflows are loaded; throws a ConfigError with their problems. */
export async function startRecordsProcess(config: RecordsConfig, parts: RecordsParts): Promise<RecordsPlane> {
  const engine = await openDatabase(config, parts);
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
  readonly #parts: RecordsParts;
  readonly #loop: SupervisedLoop;
  readonly #engine: EmbeddedPostgres | undefined;
  readonly #calls = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #lastCall = 0;
  readonly #labels = new Set<string>();
  #channel: RecordsChannel | undefined;
  /** The last state, also of a process that has ended. */
  #state: RecordsState | undefined;
  #isOpen = false;
  #isStarted = false;
  /** Why the process ends, if its exit code does not say so. */
  #reason: Error | undefined;
  /** Ticks, not time: a router that was suspended must read the reports it missed first. */
  #silentSeconds = 0;
  #silentLimitSeconds = openLimitSeconds;
  #settleFirst = (_refused?: Error) => {};

  constructor(config: RecordsConfig, parts: RecordsParts, engine: EmbeddedPostgres | undefined) {
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
    const over = new AbortController();
    const first = new Promise<void>((resolve, reject) => {
      this.#settleFirst = (refused) => (refused ? reject(refused) : resolve());
    });
    this.#loop.start();
    try {
      await Promise.race([first, this.#loop.firstRound, clock.sleep(openTimeoutMs, over.signal)]);
    } catch (error) {
      await this.stop();
      throw error;
    } finally {
      over.abort();
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

  operations(): RemoteOperations {
    const calls = operationNames.map((name) => [name, (...args: unknown[]) => this.#call(name, args)]);
    return Object.fromEntries(calls) as RemoteOperations;
  }

  /** Why records are not processed, if the process itself is the reason. */
  get #down(): string | undefined {
    if (!this.#isOpen) return this.#loop.state.last_error ?? 'the records process is starting';
    if (this.#silentSeconds < silentAfterSeconds) return undefined;
    return `the records process has not responded for ${this.#silentSeconds} s: a handler blocks its event loop`;
  }

  async #call(name: OperationName, args: unknown[]): Promise<unknown> {
    if (!this.#isOpen) throw recordsUnavailable(this.#down ?? 'the records process has ended');
    if (this.#calls.size >= maxCalls)
      throw recordsUnavailable(`the records process is busy with ${maxCalls} operations`);
    this.#lastCall += 1;
    const id = this.#lastCall;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#send({ type: 'call', id, name, args });
    });
  }

  /** Runs the process once. Resolves when it was stopped, throws if it ended on its own. */
  async #run(signal: AbortSignal, alive: (counts: Record<string, number>) => void) {
    const { clock, log } = this.#parts;
    const { recordsHeapMb, shutdownTimeoutMs } = this.#config;
    this.#silentSeconds = 0;
    this.#silentLimitSeconds = openLimitSeconds;
    const child = spawn(process.execPath, [`--max-old-space-size=${recordsHeapMb}`, entry], {
      // 3 is the channel, 4 a pipe without data: it breaks when the router ends.
      stdio: ['ignore', 'inherit', 'inherit', 'pipe', 'pipe'],
    });
    const ended = exitOf(child);
    const channel = new RecordsChannel(
      child.stdio[3] as Duplex,
      (message) => {
        this.#silentSeconds = 0;
        this.#handle(readMessage(message));
        alive({ pid: child.pid ?? 0, memory_mb: this.#state?.memoryMb ?? 0 });
      },
      (error) => {
        this.#reason = new Error(
          `the records process sent an invalid message and was killed: ${messageOf(error)}`,
        );
        channel.close();
        child.kill('SIGKILL');
      },
      channelLimits,
    );
    this.#channel = channel;
    log.info({ pid: child.pid, heap_mb: recordsHeapMb }, 'records process started');
    this.#send({ type: 'open', config: this.#config });
    let cancelKill = () => {};
    const stop = () => {
      this.#send({ type: 'stop' });
      cancelKill = clock.after(shutdownTimeoutMs + killDelayMs, () => {
        log.warn(
          { pid: child.pid },
          'records process did not stop in time; killed, its records are requeued',
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
      channel.allowMore();
      this.#silentSeconds += 1;
      if (this.#silentSeconds !== this.#silentLimitSeconds) continue;
      log.error({ pid: child.pid, seconds: this.#silentSeconds }, 'records process does not respond; killed');
      child.kill('SIGKILL');
    }
    // Read its last messages first. A process that it started may keep the channel open.
    const read = new AbortController();
    await Promise.race([channel.closed, clock.sleep(1000, read.signal)]);
    read.abort();
    channel.close();
    return ended;
  }

  #ended(how: string): void {
    this.#channel = undefined;
    this.#isOpen = false;
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const { reject } of calls) reject(recordsUnavailable(`the records process ended with ${how}`));
  }

  #handle(message: FromProcess): void {
    if (message.type === 'opened') this.#opened(message.longestTimeoutMs);
    else if (message.type === 'refused') {
      this.#reason = receivedError(message.error);
      if (this.#reason instanceof ConfigError) this.#settleFirst(this.#reason);
    } else if (message.type === 'report') this.#handleReport(message);
    else if (message.type === 'answer') this.#take(message.id)?.resolve(message.value);
    else this.#take(message.id)?.reject(receivedError(message.error));
  }

  #opened(longestTimeoutMs: number): void {
    this.#isOpen = true;
    this.#silentLimitSeconds = Math.ceil((longestTimeoutMs + defaultBounds.timeoutGraceMs) / 1000);
    if (this.#isStarted) this.#send({ type: 'start' });
  }

  #handleReport({ state, events, lines, dropped }: Report): void {
    checkLabels({ state, events }, this.#labels);
    const { listener } = this.#parts;
    // The child has serialized its errors already.
    const log = this.#parts.log.child({}, { serializers: { err: (serialized: unknown) => serialized } });
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
      log.warn({ dropped }, 'reports of the records process were full; counts of records are too low');
  }

  #take(id: number) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    return call;
  }

  /** Does nothing after the process has ended. */
  #send(message: ToProcess): void {
    void this.#channel?.send(message);
  }
}

/** Resolves to the exit code or signal. */
function exitOf(child: ChildProcess): Promise<string> {
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
