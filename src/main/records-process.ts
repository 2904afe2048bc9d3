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
import { within } from '../clock.js';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../embedded/postgres.js';
import { ConfigError, messageOf } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { OperationName, RecordsStatus, RemoteOperations } from '../records/admin.js';
import type { RecordGauges } from '../records/metrics.js';
import { defaultBounds } from '../records/workflow.js';
import { Channel, NoAnswer } from './channel.js';
import { entryOf, exitOf } from './processes.js';
import type { RecordsConfig, RecordsParts, RecordsPlane } from './records-plane.js';
import {
  checkLabels,
  downStatus,
  type RecordsState,
  type Report,
  readReport,
  readState,
  recordsUnavailable,
  remoteOperations,
} from './records-report.js';

/** Per second. A handler must not be able to block calls by flooding the channel. */
const channelLimits = { messages: 1000, bytes: 32 * 1024 ** 2 };
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
  readonly #labels = new Set<string>();
  #channel: Channel | undefined;
  /** The last state, also of a process that has ended. */
  #state: RecordsState | undefined;
  #isOpen = false;
  #isStarted = false;
  /** Ticks, not time: a router that was suspended must read the reports it missed first. */
  #silentSeconds = 0;
  #silentLimitSeconds = openLimitSeconds;
  #settleFirst = (_refused?: Error) => {};

  constructor(config: RecordsConfig, parts: RecordsParts, engine: EmbeddedPostgres | undefined) {
    this.#engine = engine;
    this.#config = config;
    this.#parts = parts;
    this.#loop = new SupervisedLoop({
      ...parts,
      name: 'records-process',
      intervalMs: 0,
      runOnce: (signal, alive) => this.#run(signal, alive),
      onCrash: parts.listener.loopCrashed,
    });
  }

  async open(): Promise<void> {
    const first = new Promise<void>((resolve, reject) => {
      this.#settleFirst = (refused) => (refused ? reject(refused) : resolve());
    });
    this.#loop.start();
    try {
      const opened = Promise.race([first, this.#loop.firstRound]);
      await within(this.#parts.clock, openTimeoutMs, opened, () => {});
    } catch (error) {
      await this.stop();
      throw error;
    } finally {
      this.#settleFirst = () => {};
    }
  }

  start(): void {
    this.#isStarted = true;
    if (this.#isOpen) void this.#channel?.notify('start');
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
    return downStatus(this.#config.zombieCleanupEnabled, error ?? null, known?.workflows);
  }

  gauges(): RecordGauges {
    if (this.#down === undefined && this.#state) return this.#state.gauges;
    return { isUp: false, isPaused: false, isBraked: false, stuck: undefined };
  }

  operations(): RemoteOperations {
    return remoteOperations((name, args) => this.#operate(name, args));
  }

  /** Why records are not processed, if the process itself is the reason. */
  get #down(): string | undefined {
    if (!this.#isOpen) return this.#loop.state.last_error ?? 'the records process is starting';
    if (this.#silentSeconds < silentAfterSeconds) return undefined;
    return `the records process has not responded for ${this.#silentSeconds} s: a handler blocks its event loop`;
  }

  async #operate(name: OperationName, args: unknown[]): Promise<unknown> {
    if (!this.#isOpen || !this.#channel)
      throw recordsUnavailable(this.#down ?? 'the records process has ended');
    if (this.#channel.waiting >= maxCalls)
      throw recordsUnavailable(`the records process is busy with ${maxCalls} operations`);
    try {
      return await this.#channel.call('operate', [name, args]);
    } catch (error) {
      throw error instanceof NoAnswer ? recordsUnavailable('the records process has ended') : error;
    }
  }

  /** Runs the process once. Resolves when it was stopped, throws if it ended on its own. */
  async #run(signal: AbortSignal, alive: (counts: Record<string, number>) => void) {
    const { clock, log } = this.#parts;
    const { recordsHeapMb, shutdownTimeoutMs } = this.#config;
    this.#silentSeconds = 0;
    this.#silentLimitSeconds = openLimitSeconds;
    const child = spawn(
      process.execPath,
      [`--max-old-space-size=${recordsHeapMb}`, entryOf('records-child')],
      {
        // 3 is the channel, 4 a pipe without data: it breaks when the router ends.
        stdio: ['ignore', 'inherit', 'inherit', 'pipe', 'pipe'],
      },
    );
    let reason: Error | undefined;
    const kill = (why: Error) => {
      reason ??= why;
      channel.close();
      child.kill('SIGKILL');
    };
    const channel = new Channel(child.stdio[3] as Duplex, {
      clock,
      handlers: {
        report: (report: unknown) => {
          this.#handleReport(readReport(report));
          alive({ pid: child.pid ?? 0, memory_mb: this.#state?.memoryMb ?? 0 });
        },
      },
      onError: (error) => {
        const why = `the records process sent an invalid message and was killed: ${messageOf(error)}`;
        kill(new Error(why));
      },
      limits: channelLimits,
    });
    this.#channel = channel;
    log.info({ pid: child.pid, heap_mb: recordsHeapMb }, 'records process started');
    const ended = exitOf(child, {
      signal,
      clock,
      stop: () => void channel.notify('stop'),
      timeoutMs: shutdownTimeoutMs + killDelayMs,
      onKill: () =>
        log.warn(
          { pid: child.pid },
          'records process did not stop in time; killed, its records are requeued',
        ),
    });
    channel
      .call('open', [this.#config])
      .then((state) => this.#opened(readState(state)))
      .catch((error: Error) => {
        if (error instanceof ConfigError) this.#settleFirst(error);
        kill(error);
      });
    const how = await this.#watch(child, channel, ended);
    this.#channel = undefined;
    this.#isOpen = false;
    channel.close(recordsUnavailable(`the records process ended with ${how}`));
    if (signal.aborted) return {};
    throw reason ?? new Error(`the records process ended with ${how}`);
  }

  async #watch(child: ChildProcess, channel: Channel, ended: Promise<string>): Promise<string> {
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
    await within(clock, 1000, channel.closed, () => {});
    const how = await ended;
    return how === 'SIGABRT' ? 'SIGABRT: out of memory? See RECORDS_HEAP_MB' : how;
  }

  #opened(state: RecordsState): void {
    this.#isOpen = true;
    this.#silentSeconds = 0;
    this.#silentLimitSeconds = Math.ceil((state.longestTimeoutMs + defaultBounds.timeoutGraceMs) / 1000);
    this.#state = state;
    if (this.#isStarted) void this.#channel?.notify('start');
    this.#settleFirst();
  }

  #handleReport({ state, events, lines, dropped }: Report): void {
    checkLabels({ state, events }, this.#labels);
    const { listener } = this.#parts;
    // The child has serialized its errors already.
    const log = this.#parts.log.child({}, { serializers: { err: (serialized: unknown) => serialized } });
    this.#silentSeconds = 0;
    this.#state = state ?? this.#state;
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
}
