/** What the demo asks the routers for as an operator would, through the address in front of them. */
import type { Clock } from '../clock.js';
import type { Endpoint } from './service.js';
import { merchants } from './setup.js';

export interface PoolNumbers {
  type: string;
  assigned: number;
  available: number;
  active_calls: number;
  capacity: number;
}

export interface RouterStatus {
  pools: Record<string, PoolNumbers>;
  active_calls: number | null;
}

interface Answer {
  ok: boolean;
  text: string;
}

const patienceMs = 1500;

export class Operator {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #clock: Clock;

  constructor(url: string, key: string | undefined, clock: Clock) {
    this.#clock = clock;
    this.#url = `${url}/api/v1`;
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  }

  /** Undefined when no router answered, or none reached the store. */
  async status(): Promise<RouterStatus | undefined> {
    try {
      const { ok, text } = await this.#ask('/status');
      const status = JSON.parse(text) as RouterStatus & { status: string };
      return ok && status.status === 'up' ? status : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * How many agents are in a pool and have reported, whatever they do since: an agent that has a call already, or was
   * drained by an early visitor, is as ready as a free one.
   */
  async registeredAgents(): Promise<number> {
    try {
      const { text } = await this.#ask('/pods?limit=1000');
      const { pods } = JSON.parse(text) as { pods: { blocked_by: string | null }[] };
      return pods.filter(({ blocked_by }) => blocked_by !== 'awaiting_report' && blocked_by !== 'not_ready')
        .length;
    } catch {
      return 0;
    }
  }

  /** They live in Redis alone: what deployed them once deploys them again after a loss. False: try again. */
  async deployMerchants(): Promise<boolean> {
    try {
      for (const [id, { config }] of Object.entries(merchants)) {
        if (!(await this.#ask(`/merchants/${id}`, config)).ok) return false;
      }
      return true;
    } catch {
      return false;
    }
  }

  /** False when no router did it. */
  async drain(pod: string, how: 'drain' | 'undrain'): Promise<boolean> {
    try {
      return (await this.#ask(`/${how}`, { pod_name: pod }, 'POST')).ok;
    } catch {
      return false;
    }
  }

  /** Whether each of these routers, asked itself, has its records open. */
  async haveRecords(routers: readonly Endpoint[]): Promise<boolean> {
    const answers = routers.map(
      async ({ host, port }) => (await this.#send(`http://${host}:${port}/api/v1/records`)).ok,
    );
    return Promise.all(answers).then(
      (all) => all.length > 0 && all.every(Boolean),
      () => false,
    );
  }

  #ask(path: string, body?: object, method = 'PUT'): Promise<Answer> {
    return this.#send(`${this.#url}${path}`, body && { method, body });
  }

  async #send(url: string, sent?: { method: string; body: object }): Promise<Answer> {
    const late = new AbortController();
    const cancel = this.#clock.after(patienceMs, () => late.abort());
    try {
      const response = await fetch(url, {
        headers: { ...this.#headers, ...(sent ? { 'content-type': 'application/json' } : {}) },
        signal: late.signal,
        ...(sent ? { method: sent.method, body: JSON.stringify(sent.body) } : {}),
      });
      return { ok: response.ok, text: await response.text() };
    } finally {
      cancel();
    }
  }
}
