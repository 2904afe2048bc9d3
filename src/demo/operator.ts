/** What the demo asks the routers for as an operator would, through the address in front of them. */
import { merchants } from './scenery.js';

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

const patienceMs = 1500;

export class Operator {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, key: string | undefined) {
    this.#url = `${url}/api/v1`;
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  }

  /** Undefined when no router answered, or none reached the store. */
  async status(): Promise<RouterStatus | undefined> {
    try {
      const response = await this.#ask('/status');
      const status = (await response.json()) as RouterStatus & { status: string };
      return response.ok && status.status === 'up' ? status : undefined;
    } catch {
      return undefined;
    }
  }

  /** They live in Redis alone: what deployed them once deploys them again after a loss. False: try again. */
  async deployMerchants(): Promise<boolean> {
    try {
      for (const [id, { config }] of Object.entries(merchants)) {
        const response = await this.#ask(`/merchants/${id}`, config);
        await response.text();
        if (!response.ok) return false;
      }
      return true;
    } catch {
      return false;
    }
  }

  #ask(path: string, put?: object): Promise<Response> {
    return fetch(`${this.#url}${path}`, {
      headers: { ...this.#headers, ...(put ? { 'content-type': 'application/json' } : {}) },
      signal: AbortSignal.timeout(patienceMs),
      ...(put ? { method: 'PUT', body: JSON.stringify(put) } : {}),
    });
  }
}
