/** The requests that the demo sends to the routers as an operator, through the address in front of them. */
import type { Static } from 'typebox';
import { type Clock, within } from '../clock.js';
import type { Pod, Status } from '../http/schemas.js';
import type { Endpoint } from './service.js';
import { merchants } from './setup.js';

export type RouterStatus = Static<typeof Status>;

const timeoutMs = 1500;

export type Operator = ReturnType<typeof operatorOf>;

export function operatorOf(ownUrl: string, key: string | undefined, clock: Clock) {
  const headers = { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) };

  /** Resolves to undefined after any failure. */
  const request = async <T>(path: string, sent: RequestInit = {}, url = ownUrl): Promise<T | undefined> => {
    const ask = async () => {
      const response = await fetch(`${url}/api/v1${path}`, { ...sent, headers });
      const body = (await response.json()) as T;
      return response.ok ? body : undefined;
    };
    return within(clock, timeoutMs, ask(), () => undefined).catch(() => undefined);
  };

  return {
    /** Resolves to undefined when no router answers or none reaches the store. */
    async status(): Promise<RouterStatus | undefined> {
      const status = await request<RouterStatus>('/status');
      return status?.status === 'up' ? status : undefined;
    },

    /** How many agents are in a pool and have reported, also those that are busy or were drained by an early visitor. */
    async registeredAgents(): Promise<number> {
      const found = await request<{ pods: Static<typeof Pod>[] }>('/pods?limit=1000');
      const isMissing = (why: string | null) => why === 'awaiting_report' || why === 'not_ready';
      return found?.pods.filter(({ blocked_by }) => !isMissing(blocked_by)).length ?? 0;
    },

    /** Merchants are only in Redis, so a flush deletes them. Resolves to false when a request failed. */
    async deployMerchants(): Promise<boolean> {
      for (const [id, config] of Object.entries(merchants)) {
        const body = JSON.stringify(config);
        if (!(await request(`/merchants/${id}`, { method: 'PUT', body }))) return false;
      }
      return true;
    },

    async drain(pod: string, how: 'drain' | 'undrain'): Promise<boolean> {
      const body = JSON.stringify({ pod_name: pod });
      return (await request(`/${how}`, { method: 'POST', body })) !== undefined;
    },

    /** Whether each of these routers serves records. */
    async haveRecords(routers: readonly Endpoint[]): Promise<boolean> {
      const answers = await Promise.all(
        routers.map(({ host, port }) => request('/records', {}, `http://${host}:${port}`)),
      );
      return answers.length > 0 && answers.every((answer) => answer !== undefined);
    },
  };
}
