/**
 * A separate process that makes calls: random arrivals (Poisson) of random length (exponential), whether or not earlier
 * calls were answered. The time of an allocate starts when the call should have begun. So waiting for a connection that
 * a slow router keeps busy counts too (no coordinated omission).
 */
import { HttpConnection } from '../support/http-connection.js';
import { percentile } from '../support/measure.js';
import { type FromGenerator, type LoadRun, type Phase, type PhaseResult, windowMs } from './messages.js';

/**
 * As many as a proxy in front of a router keeps. They are opened before the first call and stay open: hundreds of new
 * ones at once overflow the queue of the listening socket, and the benchmark would measure TCP retries.
 */
const maxConnections = 1000;
/** Timeout of a caller, the same as the router's. */
const patienceMs = 2000;
/** A server that has ended answers no release. */
const maxEndMs = 60_000;

interface Task {
  path: string;
  body: string;
  /** Time at which it was submitted: the timeout starts here. */
  sinceMs: number;
  done(status: string): void;
  /** The answer that arrived after the timeout of its caller. */
  late(status: string): void;
}

interface Sent {
  connection: HttpConnection;
  task: Task;
  isGivenUp: boolean;
}

/** First in, first out. A long array is copied by each `shift`: 4 us with 40,000 tasks, which made the generator late. */
class Queue {
  #tasks: Task[] = [];
  #next = 0;

  get length(): number {
    return this.#tasks.length - this.#next;
  }

  get first(): Task | undefined {
    return this.#tasks[this.#next];
  }

  push(task: Task): void {
    this.#tasks.push(task);
  }

  shift(): Task | undefined {
    const { first } = this;
    if (first === undefined) return undefined;
    this.#next += 1;
    if (this.#next >= 1024 && 2 * this.#next >= this.#tasks.length) {
      this.#tasks = this.#tasks.slice(this.#next);
      this.#next = 0;
    }
    return first;
  }
}

/** The connections, and the requests that wait for one. */
class Callers {
  readonly #all = new Set<HttpConnection>();
  readonly #free: HttpConnection[] = [];
  readonly #waiting = new Queue();
  /** In the order of sending, without those that timed out. */
  readonly #sent = new Set<Sent>();

  private constructor(
    readonly host: string,
    readonly port: number,
  ) {}

  static async open(url: string): Promise<Callers> {
    const { hostname, port } = new URL(url);
    const callers = new Callers(hostname, Number(port));
    while (callers.#all.size < maxConnections) {
      const some = Array.from({ length: 50 }, () => callers.#connect());
      await Promise.all(some.map(({ opened }) => opened));
      callers.#free.push(...some);
    }
    return callers;
  }

  /** Sent or waiting. */
  get busy(): number {
    return this.#sent.size + this.#waiting.length;
  }

  send(task: Task): void {
    const connection = this.#take();
    if (connection === undefined) this.#waiting.push(task);
    else this.#sendOn(connection, task);
  }

  /** Times out requests, waiting or sent. The connection is free again when its answer has arrived. */
  giveUp(nowMs: number): void {
    for (const sent of this.#sent) {
      if (nowMs - sent.task.sinceMs < patienceMs) break;
      sent.isGivenUp = true;
      this.#sent.delete(sent);
      sent.task.done('none');
    }
    while ((this.#waiting.first?.sinceMs ?? nowMs) < nowMs - patienceMs) this.#waiting.shift()?.done('none');
  }

  /** Also of timed-out requests: the router releases their pods. */
  close(): void {
    for (const connection of this.#all) connection.close();
  }

  #take(): HttpConnection | undefined {
    for (let free = this.#free.pop(); free !== undefined; free = this.#free.pop()) {
      if (!free.isClosed) return free;
      this.#all.delete(free);
    }
    return this.#all.size < maxConnections ? this.#connect() : undefined;
  }

  #connect(): HttpConnection {
    const connection = new HttpConnection(this.host, this.port);
    this.#all.add(connection);
    return connection;
  }

  #sendOn(connection: HttpConnection, task: Task): void {
    const sent: Sent = { connection, task, isGivenUp: false };
    this.#sent.add(sent);
    connection.post(task.path, task.body).then(
      (status) => this.#end(sent, status),
      () => this.#end(sent, 'broken'),
    );
  }

  #end(sent: Sent, status: string): void {
    this.#sent.delete(sent);
    if (sent.connection.isClosed) this.#all.delete(sent.connection);
    else this.#free.push(sent.connection);
    if (sent.isGivenUp) sent.task.late(status);
    else sent.task.done(status);
    const connection = this.#waiting.length > 0 ? this.#take() : undefined;
    const next = connection && this.#waiting.shift();
    if (connection && next) this.#sendOn(connection, next);
  }
}

/** Calls with a pod, by the millisecond in which they end: thousands are live, few end per tick. */
class LiveCalls {
  readonly #ending = new Map<number, string[]>();
  #nextMs = Math.floor(performance.now());
  size = 0;

  add(sid: string, endMs: number): void {
    const at = Math.max(this.#nextMs, Math.ceil(endMs));
    const sids = this.#ending.get(at);
    if (sids === undefined) this.#ending.set(at, [sid]);
    else sids.push(sid);
    this.size += 1;
  }

  takeDue(nowMs: number): string[] {
    const due: string[] = [];
    for (; this.#nextMs <= nowMs; this.#nextMs++) {
      due.push(...(this.#ending.get(this.#nextMs) ?? []));
      this.#ending.delete(this.#nextMs);
    }
    this.size -= due.length;
    return due;
  }

  takeOne(): string {
    for (const [at, sids] of this.#ending) {
      const sid = sids.pop();
      if (sids.length === 0) this.#ending.delete(at);
      if (sid === undefined) continue;
      this.size -= 1;
      return sid;
    }
    throw new Error('no live call');
  }
}

/** Results of one phase, without arrivals of its warm-up. */
class Tally {
  readonly times: number[] = [];
  readonly late: number[] = [];
  readonly windows: { times: number[]; missed: number }[] = [];
  readonly counts = { offered: 0, allocated: 0, shed: 0, failed: 0, unanswered: 0 };
  generatorCpu = 0;

  arrived(lateMs: number): void {
    this.counts.offered += 1;
    this.late.push(lateMs);
  }

  answered(status: string, ms: number, sinceWarmUpMs: number): void {
    const { counts } = this;
    const window = this.#window(Math.floor(sinceWarmUpMs / windowMs));
    if (status === '200') {
      counts.allocated += 1;
      this.times.push(ms);
      window.times.push(ms);
      return;
    }
    window.missed += 1;
    if (status === '503') counts.shed += 1;
    else if (status === 'none') counts.unanswered += 1;
    else counts.failed += 1;
  }

  result(): PhaseResult {
    const { times } = this;
    return {
      ...this.counts,
      p50Ms: percentile(times, 50),
      p99Ms: percentile(times, 99),
      p999Ms: percentile(times, 99.9),
      lateP99Ms: percentile(this.late, 99),
      generatorCpu: this.generatorCpu,
      windows: this.windows.map((window) => ({
        p99Ms: window.times.length === 0 ? 0 : percentile(window.times, 99),
        missed: window.missed,
      })),
    };
  }

  #window(index: number) {
    while (this.windows.length <= index) this.windows.push({ times: [], missed: 0 });
    return this.windows[index] as { times: number[]; missed: number };
  }
}

let calls = 0;
const tell = (message: FromGenerator) => process.send?.(message);

async function run({ url, phases, holdMs }: LoadRun): Promise<void> {
  const callers = await Callers.open(url);
  // Separate from the callers: agents have their own connections, and wait for their answers.
  const agents = await Callers.open(url);
  const live = new LiveCalls();
  const releases = { done: 0, failed: 0 };

  const asked = new Set<string>();
  const release = (sid: string) => {
    agents.send({
      path: '/api/v1/release',
      body: `{"call_sid":"${sid}"}`,
      sinceMs: performance.now(),
      done(status) {
        const isDone = status === '200' || (status === '404' && asked.has(sid));
        if (isDone) releases.done += 1;
        else if (status === '404') releases.failed += 1;
        else {
          // Rejected or unknown: retry after a second, as an agent would.
          asked.add(sid);
          live.add(sid, performance.now() + 1000);
        }
      },
      late() {},
    });
  };

  const tallies: Tally[] = [];
  let startMs = performance.now();
  for (const [index, phase] of phases.entries()) {
    const tally = new Tally();
    tallies.push(tally);
    const cpu = process.cpuUsage();
    await arrivals(
      phase,
      startMs,
      (intendedMs) => {
        const from = startMs + phase.warmUpMs;
        const counts = intendedMs >= from;
        const sid = `CA${String(++calls).padStart(32, '0')}`;
        const sinceMs = performance.now();
        if (counts) tally.arrived(sinceMs - intendedMs);
        callers.send({
          path: '/api/v1/allocate',
          body: `{"call_sid":"${sid}","merchant_id":"acme","template":"order-confirmation"}`,
          sinceMs,
          done(status) {
            const nowMs = performance.now();
            if (counts) tally.answered(status, nowMs - intendedMs, intendedMs - from);
            if (status === '200') live.add(sid, nowMs + exponential(holdMs));
          },
          // This call is not used.
          late(status) {
            if (status === '200') live.add(sid, performance.now());
          },
        });
      },
      (nowMs) => {
        callers.giveUp(nowMs);
        for (const sid of live.takeDue(nowMs)) release(sid);
      },
    );
    const { user, system } = process.cpuUsage(cpu);
    tally.generatorCpu = (user + system) / 1000 / (performance.now() - startMs);
    // A late generator does not carry its delay over: the next rate starts now.
    startMs = Math.max(startMs + phase.ms, performance.now());
    tell({ phaseEnded: index });
  }
  // All calls end; the last answers count too.
  const overMs = performance.now() + maxEndMs;
  while (callers.busy + agents.busy + live.size > 0) {
    if (performance.now() > overMs)
      throw new Error(`no end: ${live.size} live calls, ${callers.busy + agents.busy} requests`);
    while (agents.busy < 64 && live.size > 0) release(live.takeOne());
    await new Promise((resolve) => setTimeout(resolve, 1));
    callers.giveUp(performance.now());
  }
  callers.close();
  agents.close();
  tell({ results: tallies.map((tally) => tally.result()), releases });
}

/** Starts the due calls every millisecond; the delay is reported as the generator's lateness. */
async function arrivals(
  { ratePerSecond, ms }: Phase,
  startMs: number,
  arrive: (intendedMs: number) => void,
  between: (nowMs: number) => void,
): Promise<void> {
  const endMs = startMs + ms;
  let nextMs = startMs + exponential(1000 / ratePerSecond);
  while (nextMs < endMs) {
    const nowMs = performance.now();
    for (; nextMs <= nowMs && nextMs < endMs; nextMs += exponential(1000 / ratePerSecond)) arrive(nextMs);
    between(nowMs);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

function exponential(mean: number): number {
  return -Math.log(1 - Math.random()) * mean;
}

process.on('message', (message: LoadRun) => {
  run(message).catch((error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
process.once('disconnect', () => process.exit());
tell({ ready: true });
