/**
 * The router replicas: real processes, started as an operator starts them (`smart-router serve`), each with its own
 * kubeconfig for the simulated cluster.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
  /** Each holds a kubeconfig until its router has read it. */
  readonly #folders = new Map<string, string>();
  readonly #removeFolders = () => {
    for (const name of this.#folders.keys()) this.#removeFolder(name);
  };
  readonly #endpoints = new Map<string, Endpoint>();
  readonly #recordsPids = new Map<string, number>();
  /** Why a router has never been up: it would fail again. */
  failure: string | undefined;

  constructor(options: RoutersOptions) {
    this.#options = options;
    process.on('exit', this.#removeFolders);
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
    this.#removeFolders();
    process.off('exit', this.#removeFolders);
  }

  #spawn({ name, instance }: ManagedProcess) {
    const { env, envFor, kubeconfigFor } = this.#options;
    const folder = folderWith('kubeconfig', kubeconfigFor(name));
    this.#folders.set(name, folder);
    const kubeconfig = join(folder, 'kubeconfig');
    const own = { POD_NAME: name, KUBECONFIG: kubeconfig, HTTP_HOST: '127.0.0.1', HTTP_PORT: '0' };
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
    this.#removeFolder(router.name);
    this.group.markUp(router);
  }

  #exited(router: ManagedProcess, exit: Exit): void {
    const { name, ups } = router;
    if (ups === 0 && exit.requested === undefined)
      this.failure = `${name} exited with code ${exit.code}: ${exit.lastError ?? 'no error message'}`;
    this.#endpoints.delete(name);
    this.#recordsPids.delete(name);
    this.#removeFolder(name);
    this.#options.onExit(router, exit);
  }

  #removeFolder(name: string): void {
    const folder = this.#folders.get(name);
    this.#folders.delete(name);
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  }
}

/** A new folder with one file that only this user can read. */
function folderWith(name: string, content: string): string {
  let folder: string | undefined;
  try {
    folder = mkdtempSync(join(tmpdir(), 'smart-router-demo-'));
    writeFileSync(join(folder, name), content, { mode: 0o600 });
    return folder;
  } catch (error) {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
    throw new ConfigError([
      `cannot write to ${tmpdir()}: ${messageOf(error)}; free some space, or set TMPDIR to another folder`,
    ]);
  }
}
