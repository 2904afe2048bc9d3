/**
 * The router replicas: real processes, started as an operator starts them (`smart-router serve`), each with its own
 * kubeconfig for the simulated cluster. Writes one line when a router exits and when the leader changes.
 *
 * The leader is the holder of the Lease in the store of the simulated API server, unless that router has exited: the
 * Lease names it until another takes over.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { leases } from '../cluster/simulator/resources.js';
import { ConfigError, messageOf } from '../errors.js';
import type { Needs } from './context.js';
import { count, inSeconds } from './lines.js';
import { type LogLine, type ManagedProcess, ProcessGroup } from './processes.js';
import type { Endpoint } from './service.js';
import { routerNames, seconds } from './setup.js';

const binary = fileURLToPath(new URL('../../bin/smart-router.js', import.meta.url));
const parentWatch = new URL('parent-watch.js', import.meta.url).href;
const filePrefix = join(tmpdir(), `smart-router-demo-${randomUUID()}`);
/** The file that a router gets; only this user can read it, and it is deleted once the router has read it. */
const kubeconfigOf = (router: string) => `${filePrefix}-${router}`;
/** Longer than SHUTDOWN_TIMEOUT, so that a clean stop can finish. */
const stopGraceMs = 2000;

export class Routers {
  readonly group: ProcessGroup;
  leader: string | undefined;
  /** Why a router has never been up: it would fail again. */
  failure: string | undefined;
  readonly #removeFiles = () => {
    for (const { name } of this.group.all) rmSync(kubeconfigOf(name), { force: true });
  };
  readonly #stopListening: () => void;
  #holder = '';
  /** Since when there is no leader, and how many calls had started by then. */
  #gap: { after: string | undefined; sinceMs: number; calls: number } | undefined;

  constructor(
    private readonly options: Needs<'cluster' | 'counts' | 'records'>,
    private readonly env: NodeJS.ProcessEnv,
  ) {
    const { clock, cluster } = options;
    process.on('exit', this.#removeFiles);
    this.group = new ProcessGroup({
      ...options,
      kind: 'router',
      names: routerNames,
      restartSeconds: seconds.routerRestart,
      spawn: (router) => this.#spawn(router),
      onLog: (router, line) => this.#read(router, line),
      onExit: (router, code) => this.#exited(router, code),
    });
    this.#gap = { after: undefined, sinceMs: clock.monotonic(), calls: 0 };
    this.#stopListening = cluster.internals.store.onChange((resource, { type, now }) => {
      if (resource === leases) this.#leaseChanged(type === 'DELETED' ? '{}' : now.json);
    });
  }

  /** Of the routers that accept new connections. */
  get endpoints(): Endpoint[] {
    return this.group.all.flatMap(({ state, endpoint }) => (state === 'up' && endpoint ? endpoint : []));
  }

  /** The records processes of the running routers. */
  get recordsPids(): number[] {
    return this.group.all.flatMap(({ recordsPid }) => recordsPid ?? []);
  }

  async close(): Promise<void> {
    await this.group.close(stopGraceMs);
    this.#stopListening();
    this.#removeFiles();
    process.off('exit', this.#removeFiles);
  }

  #spawn({ name, instance }: ManagedProcess) {
    const { cluster, records } = this.options;
    const KUBECONFIG = kubeconfigOf(name);
    try {
      writeFileSync(KUBECONFIG, cluster.kubeconfigFor(name), { mode: 0o600 });
    } catch (error) {
      throw new ConfigError([
        `cannot write to ${tmpdir()}: ${messageOf(error)}; free some space, or set TMPDIR to another folder`,
      ]);
    }
    const own = { POD_NAME: name, KUBECONFIG, HTTP_HOST: '127.0.0.1', HTTP_PORT: '0' };
    return spawn(process.execPath, ['--no-warnings', '--import', parentWatch, binary, 'serve'], {
      env: { ...this.env, ...records.envFor(instance), ...own },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
  }

  #read(router: ManagedProcess, { msg, url, pid }: LogLine): void {
    if (msg === 'records process started') router.recordsPid = pid;
    if (msg !== 'smart-router is listening' || url === undefined) return;
    const { hostname, port } = new URL(url);
    router.endpoint = { host: hostname, port: Number(port) };
    rmSync(kubeconfigOf(router.name), { force: true });
    this.group.markUp(router);
  }

  #exited({ name, instance, ups, requested, lastError }: ManagedProcess, code: number | null): void {
    const wasLeader = this.leader === name;
    const failed = `exited with code ${code}: ${lastError ?? 'no error message'}`;
    if (ups === 0 && requested === undefined) this.failure = `${name} ${failed}`;
    const how = {
      kill: `was killed${wasLeader ? ' while leading' : ''}`,
      stop: 'stopped cleanly',
      none: code === 0 ? 'exited: it could not renew the leader lease' : failed,
    }[requested ?? 'none'];
    this.options.log('router', `${name} ${how}`);
    if (wasLeader) this.#leaderEnded(name);
    this.options.records.routerExited(instance);
  }

  #leaseChanged(json: string): void {
    const { log } = this.options;
    const { spec } = JSON.parse(json) as { spec?: { holderIdentity?: string | null } };
    const holder = spec?.holderIdentity ?? '';
    if (holder === this.#holder) return;
    this.#holder = holder;
    if (holder !== '') {
      this.leader = holder;
      log('leader', `${holder} leads${this.#gapText()}`);
      this.#gap = undefined;
    } else if (this.leader !== undefined) {
      log('leader', `${this.leader} released the leader lease`);
      this.#leaderEnded(this.leader);
    }
  }

  #gapText(): string {
    const { clock, counts } = this.options;
    if (!this.#gap) return '';
    const { after, sinceMs, calls } = this.#gap;
    const took = inSeconds(clock.monotonic() - sinceMs);
    if (after === undefined) return `, ${took} after the start`;
    return `, ${took} after ${after}; ${count(counts.started - calls, 'call')} started in between`;
  }

  #leaderEnded(name: string): void {
    const { clock, counts } = this.options;
    this.leader = undefined;
    this.#gap ??= { after: name, sinceMs: clock.monotonic(), calls: counts.started };
  }
}
