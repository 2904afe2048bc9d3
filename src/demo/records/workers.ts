/**
 * The processes that work on records. One that ends, for whatever reason, is started again after a while under its
 * name, as another life of it. They never outlive the demo: it kills them, as nothing they have is kept, and should it
 * be killed itself, they notice.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../clock.js';
import { lifeOf } from '../lives.js';
import type { WorkerSetup } from './record-worker.js';

export interface WorkersOptions {
  names: readonly string[];
  setup: Omit<WorkerSetup, 'name'>;
  restartMs: number;
  clock: Clock;
  onUp: (worker: WorkerProcess) => void;
  onEnd: (worker: WorkerProcess, ending: { isKilled: boolean; lastWords: string | undefined }) => void;
}

export interface WorkerProcess {
  readonly name: string;
  readonly state: 'starting' | 'up' | 'down';
  /** How often it was started, this time included. */
  readonly starts: number;
  /** As the database knows it. */
  readonly life: string;
}

class Running implements WorkerProcess {
  state: WorkerProcess['state'] = 'down';
  starts = 0;
  child: ChildProcess | undefined;
  isKilled = false;
  lastWords: string | undefined;

  constructor(readonly name: string) {}

  get life(): string {
    return lifeOf(this.name, this.starts);
  }
}

const program = fileURLToPath(new URL('record-worker.js', import.meta.url));

export class Workers {
  readonly #options: WorkersOptions;
  readonly #workers: readonly Running[];
  readonly #killAll = () => {
    for (const { child } of this.#workers) child?.kill('SIGKILL');
  };
  #isClosing = false;

  constructor(options: WorkersOptions) {
    this.#options = options;
    this.#workers = options.names.map((name) => new Running(name));
    process.on('exit', this.#killAll);
  }

  start(): void {
    for (const worker of this.#workers) this.#spawn(worker);
  }

  get all(): readonly WorkerProcess[] {
    return this.#workers;
  }

  /** False when it does not run. */
  kill(name: string): boolean {
    const worker = this.#workers.find((one) => one.name === name);
    if (!worker?.child) return false;
    worker.isKilled = true;
    return worker.child.kill('SIGKILL');
  }

  /** Resolves when none of them runs any more. */
  async close(): Promise<void> {
    this.#isClosing = true;
    const children = this.#workers.flatMap(({ child }) => child ?? []);
    const ended = children.map((child) => new Promise((resolve) => child.once('close', resolve)));
    this.#killAll();
    await Promise.all(ended);
    process.off('exit', this.#killAll);
  }

  #spawn(worker: Running): void {
    if (this.#isClosing) return;
    const child = spawn(process.execPath, ['--no-warnings', program], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    worker.child = child;
    worker.state = 'starting';
    worker.starts += 1;
    worker.isKilled = false;
    worker.lastWords = undefined;
    // A message to a child that has just died is lost; its end is told by `close`.
    child.send({ ...this.#options.setup, name: worker.life } satisfies WorkerSetup, () => {});
    child.on('message', () => {
      worker.state = 'up';
      this.#options.onUp(worker);
    });
    if (child.stderr)
      createInterface({ input: child.stderr }).on('line', (line) => {
        worker.lastWords = spoken(line) ?? worker.lastWords;
      });
    child.on('error', (error) => {
      worker.lastWords = error.message;
    });
    child.once('close', () => this.#ended(worker));
  }

  #ended(worker: Running): void {
    const { isKilled, lastWords } = worker;
    worker.state = 'down';
    worker.child = undefined;
    if (this.#isClosing) return;
    const { clock, restartMs, onEnd } = this.#options;
    onEnd(worker, { isKilled, lastWords });
    clock.after(restartMs, () => this.#spawn(worker), { unref: true });
  }
}

/** What a line of its log says, or the line itself. */
function spoken(line: string): string | undefined {
  try {
    const { msg, err } = JSON.parse(line) as { msg?: string; err?: { message?: string } };
    return err?.message ?? msg;
  } catch {
    return line.trim() || undefined;
  }
}
