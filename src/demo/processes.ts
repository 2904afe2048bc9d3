/**
 * A group of named child processes. One that exits is started again after a pause, as Kubernetes does with a container.
 * Each start is an instance of its own: `worker-1.2` is the second start of `worker-1`, and the database knows it by
 * that name.
 *
 * No child outlives the demo: `close` ends them, the exit of the demo kills them, and if the demo is killed
 * parent-watch.ts ends them.
 */
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { DemoContext } from './context.js';
import type { Endpoint } from './service.js';

export const instanceOf = (name: string, starts: number) => `${name}.${starts}`;
export const nameOf = (instance: string) => instance.replace(/\.\d+$/, '');

/** `up`: ready for work. `stopping`: it received a signal and has not exited yet. */
export type ProcessState = 'starting' | 'up' | 'stopping' | 'down';

export interface LogLine {
  level?: string;
  msg?: string;
  url?: string;
  pid?: number;
  err?: { message?: string };
}

export class ManagedProcess {
  state: ProcessState = 'down';
  child: ChildProcess | undefined;
  /** Every start, also one that failed. */
  starts = 0;
  /** How often it was up. */
  ups = 0;
  /** The signal that the demo sent since the last start; undefined: a process that exits does so on its own. */
  requested: 'kill' | 'stop' | undefined;
  /** Since the last start. */
  lastError: string | undefined;
  /** Of a router: where it answers, and the pid of its records process. */
  endpoint: Endpoint | undefined;
  recordsPid: number | undefined;

  constructor(readonly name: string) {}

  get instance(): string {
    return instanceOf(this.name, this.starts);
  }
}

interface ProcessGroupOptions extends DemoContext {
  kind: 'router' | 'worker';
  names: readonly string[];
  spawn: (process: ManagedProcess) => ChildProcess;
  restartSeconds: number;
  onLog?: (process: ManagedProcess, line: LogLine) => void;
  onExit: (process: ManagedProcess, code: number | null) => void;
}

export class ProcessGroup {
  readonly all: readonly ManagedProcess[];
  readonly #killAll = () => {
    for (const { child } of this.all) child?.kill('SIGKILL');
  };
  #isClosing = false;

  constructor(private readonly options: ProcessGroupOptions) {
    this.all = options.names.map((name) => new ManagedProcess(name));
    process.on('exit', this.#killAll);
  }

  start(): void {
    for (const process of this.all) this.#start(process);
  }

  /** Returns false when the process does not run. */
  end(name: string, how: 'kill' | 'stop'): boolean {
    const process = this.all.find((one) => one.name === name);
    if (!process?.child) return false;
    process.requested = how;
    process.state = 'stopping';
    return process.child.kill(how === 'kill' ? 'SIGKILL' : 'SIGTERM');
  }

  /** Resolves when no process runs any more; those that need longer than `graceMs` are killed. */
  async close(graceMs = 0): Promise<void> {
    this.#isClosing = true;
    const closed = this.all.map(
      ({ child }) => child && new Promise((resolve) => child.once('close', resolve)),
    );
    for (const { name } of this.all) this.end(name, graceMs > 0 ? 'stop' : 'kill');
    const cancel = this.options.clock.after(graceMs, this.#killAll);
    await Promise.all(closed);
    cancel();
    process.off('exit', this.#killAll);
  }

  markUp(process: ManagedProcess): void {
    if (process.state !== 'starting') return;
    process.state = 'up';
    process.ups += 1;
    const { kind, log } = this.options;
    log(kind, `${process.name} is up${process.ups > 1 ? ' again' : ''}`);
  }

  #start(process: ManagedProcess): void {
    if (this.#isClosing) return;
    process.starts += 1;
    const child = this.options.spawn(process);
    Object.assign(process, { state: 'starting', child, requested: undefined, lastError: undefined });
    for (const stream of [child.stdout, child.stderr])
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#read(process, line));
    child.on('error', (error) => {
      process.lastError = error.message;
    });
    // `close`, not `exit`: the last lines of its output are read first.
    child.once('close', (code) => this.#exited(process, code));
  }

  #read(process: ManagedProcess, text: string): void {
    const line = parse(text);
    const { level, msg, err } = line;
    if (level === undefined) process.lastError = text.trim() || process.lastError;
    if (level === 'error' || level === 'fatal') process.lastError = err?.message ?? msg;
    this.options.onLog?.(process, line);
  }

  #exited(process: ManagedProcess, code: number | null): void {
    Object.assign(process, { state: 'down', child: undefined, endpoint: undefined, recordsPid: undefined });
    if (this.#isClosing) return;
    const { clock, ms, restartSeconds, onExit } = this.options;
    onExit(process, code);
    clock.after(ms(restartSeconds), () => this.#start(process), { unref: true });
  }
}

function parse(line: string): LogLine {
  try {
    return JSON.parse(line) as LogLine;
  } catch {
    return {};
  }
}
