import { expect, it } from 'vitest';
import { type AttachedCall, type Client, createClient, SmartRouterError } from '../../src/client/index.js';
import {
  type ClientSettings,
  type Driver,
  type Fields,
  type Operation,
  operations,
  operationsOf,
  type Session,
  type Target,
} from './format.js';
import { cases, conformance } from './suite.js';

/** The TypeScript client. It has no agent of its own: a reporter and attached calls are one. */
class ClientSession implements Session {
  readonly #client: Client;
  readonly #agent: Target['agent'];
  readonly #reporter;
  /** Calls that the agent serves, and those under `hold`. */
  readonly #served = new Map<string, AttachedCall>();
  readonly #held = new Map<string, AttachedCall>();
  readonly #fallbacks = new Map<string, { release(): Promise<object> }>();

  constructor({ url, apiKey, client, agent }: Target) {
    this.#client = createClient({ baseUrl: url, apiKey, ...clientOptions(client) });
    this.#agent = agent;
    this.#reporter =
      agent &&
      this.#client.startReporting(agent.pod, () => [...this.#served.keys()], {
        intervalMs: agent.interval_ms,
      });
  }

  async run(op: Operation, args: Fields): Promise<Fields> {
    try {
      return { ...(await this.#run(op, args)) };
    } catch (error) {
      if (!(error instanceof SmartRouterError)) throw error;
      const { code, ...fields } = JSON.parse(JSON.stringify(error)) as Fields;
      return { error: code, ...fields };
    }
  }

  async close(): Promise<void> {
    this.#client.close();
  }

  // The arguments are data: some cases pass values of a wrong type on purpose.
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  async #run(op: Operation, args: Record<string, any>): Promise<object> {
    const client = this.#client;
    const { call: callSid, fence, pod } = args;
    switch (op) {
      case 'allocate': {
        const call = await client.allocate({ callSid, merchantId: args.merchant }, { wait: args.wait_ms });
        if (call.fallback) this.#fallbacks.set(callSid, call);
        const { podName, wsUrl, fence, wasExisting, fallback } = call;
        const has_waited = typeof call.waitedMs === 'number';
        return { pod_name: podName, ws_url: wsUrl, fence, was_existing: wasExisting, fallback, has_waited };
      }
      case 'release':
        return this.#fallbacks.get(callSid)?.release() ?? client.release(callSid, { fence });
      case 'renew':
        return client.renew(callSid, { fence });
      case 'report':
        return client.report(pod, args.calls);
      case 'drain':
        return { active_calls: (await client.drain(pod, { wait: args.wait_ms })).activeCalls };
      case 'undrain':
        await client.undrain(pod);
        return {};
      case 'breaker':
        return { state: client.breakerState };
      case 'hold': {
        const call = client.attach({ callSid, fence });
        this.#held.set(callSid, call);
        call.keepAlive({ intervalMs: args.period_ms });
        return {};
      }
      case 'end_hold':
        return this.#of(this.#held, callSid).release();
      case 'begin_call':
        this.#served.set(callSid, client.attach({ callSid, fence }));
        await this.#reporter?.runOnce();
        return {};
      case 'end_call': {
        const call = this.#of(this.#served, callSid);
        this.#served.delete(callSid);
        await call.release();
        return {};
      }
      case 'calls':
        return { calls: [...this.#served.keys()].sort() };
      case 'lost': {
        const { lost } = this.#of(this.#served.has(callSid) ? this.#served : this.#held, callSid);
        if (!lost.aborted) await new Promise((resolve) => lost.addEventListener('abort', resolve));
        return { reason: lost.reason.reason };
      }
      case 'drain_agent': {
        const { activeCalls } = await client.drain(this.#agent?.pod ?? '', { wait: args.wait_ms });
        return { active_calls: activeCalls };
      }
      default:
        throw new Error(`the driver does not support ${op}`);
    }
  }

  #of(calls: Map<string, AttachedCall>, callSid: string): AttachedCall {
    const call = calls.get(callSid);
    if (call === undefined) throw new Error(`unknown call ${callSid}`);
    return call;
  }
}

function clientOptions(settings: ClientSettings) {
  return {
    ...(settings.api_key === undefined ? {} : { apiKey: settings.api_key }),
    timeoutMs: settings.timeout_ms,
    retries: settings.retries,
    fallbackUrl: settings.fallback_url,
    backoff: settings.backoff_base_ms === undefined ? {} : { baseMs: settings.backoff_base_ms },
    breaker: JSON.parse(
      JSON.stringify({
        failures: settings.breaker_failures,
        openMs: settings.breaker_open_ms,
        trials: settings.breaker_trials,
      }),
    ),
  };
}

const typescript: Driver = {
  name: 'typescript',
  // A library sends no signal to its own process.
  operations: operations.filter((op) => op !== 'terminate' && op !== 'exited'),
  open: async (target) => new ClientSession(target),
};

it('the cases have unique names and use known operations', () => {
  expect(cases.flatMap(operationsOf).filter((op) => !operations.includes(op))).toEqual([]);
  const names = cases.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

conformance(typescript);
