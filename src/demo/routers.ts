/**
 * The router replicas: real processes, started as an operator starts them (`smart-router serve`), each with its own
 * kubeconfig for the simulated cluster.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../clock.js';
import { ConfigError, messageOf } from '../errors.js';
import { type Exit, type LogLine, type ManagedProcess, ProcessGroup } from './processes.js';
import type { Endpoint } from './service.js';

interface RoutersOptions {
  names: readonly string[];
  env: NodeJS.ProcessEnv;
  /** What depends on the instance. */
  envFor: (instance: string) => NodeJS.ProcessEnv;
  kubeconfigFor: (name: string) => string;
  restartMs: number;
  clock: Clock;
  onUp: (router: ManagedProcess) => void;
  onExit: (router: ManagedProcess, exit: Exit) => void;
}

const binary = fileURLToPath(new URL('../../bin/smart-router.js', import.meta.url));
const parentWatch = new URL('parent-watch.js', import.meta.url).href;
/** Longer than SHUTDOWN_TIMEOUT, so that a clean stop can finish. */
const stopGraceMs = 2000;

export class Routers {
  readonly #options: RoutersOptions;
  readonly group: ProcessGroup;
  /** Of the kubeconfig of each router, which only this user can read, until the router has read it. */
  readonly #filePrefix = join(tmpdir(), `smart-router-demo-${randomUUID()}`);
  readonly #removeFiles = () => {
    for (const { name } of this.group.all) rmSync(this.#kubeconfig(name), { force: true });
  };
  readonly #endpoints = new Map<string, Endpoint>();
  readonly #recordsPids = new Map<string, number>();
  /** Why a router has never been up: it would fail again. */
  failure: string | undefined;

  constructor(options: RoutersOptions) {
    this.#options = options;
    process.on('exit', this.#removeFiles);
    this.group = new ProcessGroup({
      ...options,
      spawn: (router) => this.#spawn(router),
      onLog: (router, line) => this.#read(router, line),
      onExit: (router, exit) => this.#exited(router, exit),
    });
  }

  /** Of the routers that accept new connections. */
  get endpoints(): Endpoint[] {
    return this.group.all.flatMap(({ name, state }) =>
      state === 'up' ? (this.#endpoints.get(name) ?? []) : [],
    );
  }

  /** The records processes of the running routers. */
  get recordsPids(): number[] {
    return [...this.#recordsPids.values()];
  }

  async close(): Promise<void> {
    await this.group.close(stopGraceMs);
    this.#removeFiles();
    process.off('exit', this.#removeFiles);
  }

  #spawn({ name, instance }: ManagedProcess) {
    const { env, envFor, kubeconfigFor } = this.#options;
    const KUBECONFIG = this.#kubeconfig(name);
    try {
      writeFileSync(KUBECONFIG, kubeconfigFor(name), { mode: 0o600 });
    } catch (error) {
      throw new ConfigError([
        `cannot write to ${tmpdir()}: ${messageOf(error)}; free some space, or set TMPDIR to another folder`,
      ]);
    }
    const own = { POD_NAME: name, KUBECONFIG, HTTP_HOST: '127.0.0.1', HTTP_PORT: '0' };
    return spawn(process.execPath, ['--no-warnings', '--import', parentWatch, binary, 'serve'], {
      env: { ...env, ...envFor(instance), ...own },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
  }

  #read(router: ManagedProcess, { msg, url, pid }: LogLine): void {
    if (msg === 'records process started' && pid !== undefined) this.#recordsPids.set(router.name, pid);
    if (msg !== 'smart-router is listening' || url === undefined) return;
    const { hostname, port } = new URL(url);
    this.#endpoints.set(router.name, { host: hostname, port: Number(port) });
    rmSync(this.#kubeconfig(router.name), { force: true });
    this.group.markUp(router);
  }

  #exited(router: ManagedProcess, exit: Exit): void {
    const { name, ups } = router;
    if (ups === 0 && exit.requested === undefined)
      this.failure = `${name} exited with code ${exit.code}: ${exit.lastError ?? 'no error message'}`;
    this.#endpoints.delete(name);
    this.#recordsPids.delete(name);
    this.#options.onExit(router, exit);
  }

  #kubeconfig(name: string): string {
    return `${this.#filePrefix}-${name}`;
  }
}
