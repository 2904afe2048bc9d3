/**
 * Three routers as an operator starts them, each with a proxy between itself and the store and another one between itself
 * and the Kubernetes API. One that exits is restarted, as a kubelet would do.
 */
import { writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import type { HistoryWriter } from '../history/writer.js';
import type { Cluster } from '../support/cluster.js';
import { freePorts } from '../support/ports.js';
import { openTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import type { Attack } from './attackers.js';
import { Child, root } from './child.js';
import type { Store } from './redis.js';
import { apiKey, env, times } from './times.js';

export type Link = TcpProxy & { close(): void };

export interface Answer {
  /** 0: no reply. */
  status: number;
  body: AnswerBody;
  /** As it came. */
  text?: string;
}

export interface AnswerBody {
  code?: string;
  pod_name?: string;
  source_pool?: string;
  fence?: number;
  was_existing?: boolean;
  lease_expires_at?: string;
  is_leader?: boolean;
  leader?: string | null;
  active_calls?: number | null;
  pools?: Record<string, { assigned: number; available: number }>;
}

export const nothing: Answer = { status: 0, body: {} };

/** Far beyond `REQUEST_TIMEOUT`, so that a busy machine is not taken for a router that hangs. */
const hangsAfterMs = 15_000;
const restartMs = 500;
/** A router that was paused or started has requests to catch up with for this long. */
const settledAfterMs = 5000;

export class Router {
  #child: Child | undefined;
  #isWanted = false;
  #restart: NodeJS.Timeout | undefined;
  /** Increases with every interruption: killed, paused, started. */
  #disturbances = 0;
  #disturbedAtMs = 0;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 200 });
  readonly url: string;

  constructor(
    readonly name: string,
    readonly port: number,
    readonly store: Link | undefined,
    readonly api: Link,
    private readonly settings: Readonly<Record<string, string>>,
    private readonly logFile: string,
    private readonly told: { note(line: string): void; violated(what: string): void },
    private readonly requests: HistoryWriter,
  ) {
    this.url = `http://127.0.0.1:${port}`;
  }

  get isRunning(): boolean {
    return this.#child?.isRunning === true;
  }

  #disturb(): void {
    this.#disturbances += 1;
    this.#disturbedAtMs = Date.now();
  }

  /** Strangers attack it for as long as `held` lasts. */
  async attack(attack: Attack, held: Promise<void>): Promise<void> {
    const stop = attack(this.port);
    await held;
    stop();
  }

  start(): void {
    this.#isWanted = true;
    this.#disturb();
    if (this.isRunning) return;
    this.#child = new Child({
      command: [process.execPath, join(root, 'bin', 'smart-router.js'), 'serve'],
      env: this.settings,
      logFile: this.logFile,
      onEnd: (why) => {
        this.#disturb();
        this.told.note(`${this.name} ${why}`);
        this.#restart = setTimeout(() => this.#isWanted && this.start(), restartMs);
      },
    });
  }

  async end(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<void> {
    this.#isWanted = false;
    this.#disturb();
    clearTimeout(this.#restart);
    await this.#child?.end(signal);
  }

  pause(): void {
    this.#disturb();
    this.#child?.pause();
  }

  resume(): void {
    this.#disturb();
    this.#child?.resume();
  }

  close(): void {
    this.#agent.destroy();
    this.store?.close();
    this.api.close();
  }

  get(path: string): Promise<Answer> {
    return this.#send('GET', path);
  }

  /** What its last audit has found; undefined where it does not lead, has not audited yet, or does not answer. */
  async violationsFound(): Promise<number | undefined> {
    const { text = '' } = await this.get('/metrics');
    const value = /^smart_router_invariant_violations (\S+)$/m.exec(text)?.[1];
    return value === undefined ? undefined : Number(value);
  }

  post(path: string, body: unknown, hangUp?: AbortSignal): Promise<Answer> {
    return this.requests.send(path, body, () => this.#send('POST', path, body, hangUp));
  }

  /** Invariant 11 on the way: a router that nothing happened to answers, with or without its store. */
  #send(method: string, path: string, body?: unknown, hangUp?: AbortSignal): Promise<Answer> {
    const disturbances = this.#disturbances;
    return new Promise((resolve) => {
      const outgoing = httpRequest(
        this.url + path,
        {
          ...{ method, agent: this.#agent, signal: hangUp },
          headers: {
            authorization: `Bearer ${apiKey}`,
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          },
        },
        (incoming) => {
          let text = '';
          incoming.setEncoding('utf8');
          incoming.on('data', (chunk: string) => {
            text += chunk;
          });
          incoming.on('error', () => over(nothing));
          incoming.on('end', () => over({ status: incoming.statusCode ?? 0, body: parsed(text), text }));
        },
      );
      const givesUp = setTimeout(() => resolve(nothing), times.patienceMs);
      const hangs = setTimeout(() => {
        if (disturbances === this.#disturbances)
          this.told.violated(`11: ${this.name} has not answered ${path} within ${hangsAfterMs} ms`);
        outgoing.destroy();
      }, hangsAfterMs);
      const isSettled = Date.now() - this.#disturbedAtMs > settledAfterMs;
      const over = (answer: Answer) => {
        // A few hundred callers never fill a router: only attackers could have taken their places.
        if (answer.body.code === 'overloaded' && isSettled && disturbances === this.#disturbances)
          this.told.violated(`${this.name} rejected ${path} of a known caller as overloaded`);
        clearTimeout(givesUp);
        clearTimeout(hangs);
        resolve(answer);
      };
      outgoing.on('error', () => over(nothing));
      outgoing.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

function parsed(text: string): AnswerBody {
  try {
    return JSON.parse(text) as AnswerBody;
  } catch {
    return {};
  }
}

export async function openRouters(
  folder: string,
  store: Store,
  cluster: Cluster,
  told: { note(line: string): void; violated(what: string): void },
  requests: HistoryWriter,
): Promise<Router[]> {
  const ports = await freePorts(3);
  return Promise.all(
    ports.map(async (port, i) => {
      const name = `router-${i}`;
      const link = store.port === undefined ? undefined : await openTcpProxy(store.port);
      const api = await openTcpProxy(cluster.port);
      const kubeconfig = join(folder, `${name}.kubeconfig`);
      writeFileSync(kubeconfig, cluster.kubeconfigFor(name).replace(`:${cluster.port}`, `:${api.port}`));
      const settings = {
        ...env,
        HTTP_PORT: String(port),
        POD_NAME: name,
        KUBECONFIG: kubeconfig,
        REDIS_URL: store.urlFor(link?.port),
        // Both settings of LEADER_LOSS: exit (the default) and follow.
        LEADER_LOSS: i === 0 ? 'exit' : 'follow',
      };
      return new Router(name, port, link, api, settings, join(folder, `${name}.log`), told, requests);
    }),
  );
}
