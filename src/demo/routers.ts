/**
 * The router replicas: real processes, started as an operator starts them (`smart-router serve`), each with a
 * kubeconfig of its own that leads to the simulated cluster. One that ends, for whatever reason, is started again
 * after a moment under its name, as Kubernetes does with a container.
 *
 * They never outlive the demo: it stops them, its end kills them (`exit`), and should it be killed itself, their
 * leash does.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../clock.js';
import { lifeOf } from './lives.js';
import type { Endpoint } from './service.js';

/** `up`: it listens and takes new connections. `stopping`: it was asked to end and finishes what it has. */
export type ReplicaState = 'starting' | 'up' | 'stopping' | 'down';

export interface Replica {
  readonly name: string;
  readonly state: ReplicaState;
  readonly endpoint: Endpoint | undefined;
  /** How often it has been up, this time included. */
  readonly starts: number;
  /** As the database knows it: its name, and how often it was started. */
  readonly life: string;
  /** The process of its records, as the database knows it; undefined while there is none. */
  readonly recordsPid: number | undefined;
}

export interface Ending {
  /** What the demo did to it; undefined: it ended by itself. */
  asked: 'kill' | 'stop' | undefined;
  code: number | null;
  /** The last thing it complained about. */
  lastWords: string | undefined;
}

export interface RoutersOptions {
  names: readonly string[];
  env: NodeJS.ProcessEnv;
  /** What depends on which start of it this is. */
  envFor: (life: string) => NodeJS.ProcessEnv;
  kubeconfigFor: (name: string) => string;
  restartMs: number;
  clock: Clock;
  onUp: (replica: Replica) => void;
  onEnd: (replica: Replica, ending: Ending) => void;
}

interface Running extends Replica {
  state: ReplicaState;
  endpoint: Endpoint | undefined;
  starts: number;
  lives: number;
  life: string;
  recordsPid: number | undefined;
  child: ChildProcess | undefined;
  /** Holds its kubeconfig until it has read it. */
  folder: string | undefined;
  asked: Ending['asked'];
  lastWords: string | undefined;
}

const binary = fileURLToPath(new URL('../../bin/smart-router.js', import.meta.url));
const leash = new URL('parent-watch.js', import.meta.url).href;
/** Longer than SHUTDOWN_TIMEOUT: a clean end is not cut short. */
const patienceMs = 2000;

export class Routers {
  readonly #options: RoutersOptions;
  readonly #replicas: readonly Running[];
  readonly #killAll = () => {
    for (const { child, folder } of this.#replicas) {
      child?.kill('SIGKILL');
      discard(folder);
    }
  };
  #isClosing = false;
  #failure: string | undefined;

  constructor(options: RoutersOptions) {
    this.#options = options;
    this.#replicas = options.names.map((name) => ({
      name,
      state: 'down',
      endpoint: undefined,
      starts: 0,
      lives: 0,
      life: lifeOf(name, 0),
      recordsPid: undefined,
      child: undefined,
      folder: undefined,
      asked: undefined,
      lastWords: undefined,
    }));
    process.on('exit', this.#killAll);
  }

  start(): void {
    for (const replica of this.#replicas) this.#spawn(replica);
  }

  get replicas(): readonly Replica[] {
    return this.#replicas;
  }

  /** Why one of them has never come up: trying again will not mend that. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** Those that take new connections. */
  get endpoints(): Endpoint[] {
    return this.#replicas.flatMap(({ state, endpoint }) => (state === 'up' && endpoint ? [endpoint] : []));
  }

  /** The processes that work on records for those that are alive. */
  get recordsPids(): number[] {
    return this.#replicas.flatMap(({ recordsPid }) => recordsPid ?? []);
  }

  /** False when it does not run. */
  end(name: string, how: 'kill' | 'stop'): boolean {
    const replica = this.#replicas.find((one) => one.name === name);
    if (!replica?.child) return false;
    replica.asked = how;
    replica.state = 'stopping';
    replica.child.kill(how === 'kill' ? 'SIGKILL' : 'SIGTERM');
    return true;
  }

  /** Resolves when none of them runs any more. */
  async close(): Promise<void> {
    this.#isClosing = true;
    const children = this.#replicas.flatMap(({ child }) => child ?? []);
    const ended = children.map((child) => new Promise((resolve) => child.once('exit', resolve)));
    for (const { name } of this.#replicas) this.end(name, 'stop');
    const cancel = this.#options.clock.after(patienceMs, this.#killAll);
    await Promise.all(ended);
    cancel();
    this.#killAll();
    process.off('exit', this.#killAll);
  }

  #spawn(replica: Running): void {
    if (this.#isClosing) return;
    const { env, envFor, kubeconfigFor } = this.#options;
    replica.lives += 1;
    replica.life = lifeOf(replica.name, replica.lives);
    const folder = mkdtempSync(join(tmpdir(), 'smart-router-demo-'));
    const kubeconfig = join(folder, 'kubeconfig');
    writeFileSync(kubeconfig, kubeconfigFor(replica.name), { mode: 0o600 });
    // Node says nothing on the screen of the demo that is not meant for it.
    const child = spawn(process.execPath, ['--no-warnings', '--import', leash, binary, 'serve'], {
      env: {
        ...env,
        ...envFor(replica.life),
        POD_NAME: replica.name,
        KUBECONFIG: kubeconfig,
        HTTP_HOST: '127.0.0.1',
        HTTP_PORT: '0',
      },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    Object.assign(replica, { state: 'starting', child, folder, asked: undefined, lastWords: undefined });
    for (const stream of [child.stdout, child.stderr])
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#hear(replica, line));
    // `close`, not `exit`: its last words are read first.
    child.once('close', (code) => this.#ended(replica, code));
    child.on('error', (error) => {
      replica.lastWords = error.message;
    });
  }

  #hear(replica: Running, line: string): void {
    const { level, msg, url, err, pid } = parse(line);
    if (msg === 'records run in a process of their own') replica.recordsPid = pid;
    if (level === undefined) replica.lastWords = line.trim() || replica.lastWords;
    if (level === 'error' || level === 'fatal') replica.lastWords = err?.message ?? msg;
    if (msg !== 'smart-router is listening' || url === undefined || replica.state !== 'starting') return;
    const { hostname, port } = new URL(url);
    replica.endpoint = { host: hostname, port: Number(port) };
    replica.state = 'up';
    replica.starts += 1;
    discard(replica.folder);
    this.#options.onUp(replica);
  }

  #ended(replica: Running, code: number | null): void {
    const { asked, lastWords, starts } = replica;
    if (starts === 0 && asked === undefined)
      this.#failure = `${replica.name} ended with ${code}: ${lastWords ?? 'it said nothing'}`;
    discard(replica.folder);
    Object.assign(replica, {
      state: 'down',
      endpoint: undefined,
      child: undefined,
      recordsPid: undefined,
      folder: undefined,
    });
    if (this.#isClosing) return;
    const { clock, restartMs, onEnd } = this.#options;
    onEnd(replica, { asked, code, lastWords });
    clock.after(restartMs, () => this.#spawn(replica), { unref: true });
  }
}

function discard(folder: string | undefined): void {
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
}

interface LogLine {
  level?: string;
  msg?: string;
  url?: string;
  pid?: number;
  err?: { message?: string };
}

function parse(line: string): LogLine {
  try {
    return JSON.parse(line) as LogLine;
  } catch {
    return {};
  }
}
