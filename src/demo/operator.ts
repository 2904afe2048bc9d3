/** The requests that the demo sends to the routers as an operator, through the address in front of them. */
import type { Static } from 'typebox';
import type { Clock } from '../clock.js';
import type { Pod, Pool, Status } from '../http/schemas.js';
import type { Endpoint } from './service.js';
import { merchants } from './setup.js';

export type PoolNumbers = Static<typeof Pool>;
export type RouterStatus = Static<typeof Status>;

const timeoutMs = 1500;

export class Operator {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #clock: Clock;

  constructor(url: string, key: string | undefined, clock: Clock) {
    this.#clock = clock;
    this.#url = url;
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  }

  /** Resolves to undefined when no router answers or none reaches the store. */
  async status(): Promise<RouterStatus | undefined> {
    const status = await this.#request<RouterStatus>('/status');
    return status?.status === 'up' ? status : undefined;
  }

  /** How many agents are in a pool and have reported, also those that are busy or were drained by an early visitor. */
  async registeredAgents(): Promise<number> {
    const found = await this.#request<{ pods: Static<typeof Pod>[] }>('/pods?limit=1000');
    const isMissing = (why: string | null) => why === 'awaiting_report' || why === 'not_ready';
    return found?.pods.filter(({ blocked_by }) => !isMissing(blocked_by)).length ?? 0;
  }

  /** Merchants are only in Redis, so a flush deletes them. Resolves to false when a request failed. */
  async deployMerchants(): Promise<boolean> {
    for (const [id, config] of Object.entries(merchants))
      if (!(await this.#request(`/merchants/${id}`, { method: 'PUT', body: config }))) return false;
    return true;
  }

  async drain(pod: string, how: 'drain' | 'undrain'): Promise<boolean> {
    const body = { pod_name: pod };
    return (await this.#request(`/${how}`, { method: 'POST', body })) !== undefined;
  }

  /** Whether each of these routers serves records. */
  async haveRecords(routers: readonly Endpoint[]): Promise<boolean> {
    const answers = await Promise.all(
      routers.map(({ host, port }) => this.#request('/records', undefined, `http://${host}:${port}`)),
    );
    return answers.length > 0 && answers.every((answer) => answer !== undefined);
  }

  /** Resolves to undefined after any failure. */
  async #request<T>(
    path: string,
    sent?: { method: string; body: object },
    url = this.#url,
  ): Promise<T | undefined> {
    const timeout = new AbortController();
    const cancel = this.#clock.after(timeoutMs, () => timeout.abort());
    try {
      const response = await fetch(`${url}/api/v1${path}`, {
        headers: { ...this.#headers, ...(sent ? { 'content-type': 'application/json' } : {}) },
        signal: timeout.signal,
        ...(sent ? { method: sent.method, body: JSON.stringify(sent.body) } : {}),
      });
      const body = (await response.json()) as T;
      return response.ok ? body : undefined;
    } catch {
      return undefined;
    } finally {
      cancel();
    }
  }
}
