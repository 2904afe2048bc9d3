import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished, vi } from 'vitest';
import { type Client, type ClientEvent, type ClientOptions, createClient } from '../../src/client/index.js';
import { ManualClock } from '../support/manual-clock.js';

export interface Received {
  method: string;
  path: string;
  headers: http.IncomingHttpHeaders;
  body: Record<string, unknown>;
}

/** `reset` cuts the connection, `hang` never answers. */
export type Reply =
  | { status?: number; json?: unknown; text?: string; headers?: Record<string, string> }
  | 'reset'
  | 'hang';

/** A real HTTP server that answers what the test says: first `queue` in order, then `otherwise`. */
export class ScriptedRouter {
  readonly received: Received[] = [];
  readonly queue: (Reply | Promise<Reply>)[] = [];
  otherwise: (request: Received) => Reply | Promise<Reply> = () => ({ status: 500, text: 'no script' });
  inFlight = 0;
  baseUrl = '';
  readonly #server = http.createServer((request, response) => void this.#serve(request, response));

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    this.baseUrl = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  /** Bodies of the requests to one path. */
  bodies(path: string): Record<string, unknown>[] {
    return this.received.filter((request) => request.path === path).map((request) => request.body);
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    this.inFlight += 1;
    response.on('close', () => {
      this.inFlight -= 1;
    });
    let text = '';
    for await (const chunk of request) text += chunk;
    const received = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      body: JSON.parse(text || '{}') as Record<string, unknown>,
    };
    const answer = this.queue.shift() ?? this.otherwise(received);
    this.received.push(received);
    const reply = await answer;
    if (reply === 'hang') return;
    if (reply === 'reset') {
      request.socket.destroy();
      return;
    }
    const { status = 200, json, headers = {} } = reply;
    response.writeHead(status, { 'content-type': json ? 'application/json' : 'text/html', ...headers });
    response.end(json ? JSON.stringify(json) : (reply.text ?? ''));
  }
}

export interface Fixture {
  router: ScriptedRouter;
  clock: ManualClock;
  client: Client;
  events: ClientEvent[];
  /** Another client of the same router. */
  another(options?: Partial<ClientOptions>): Client;
}

/** A fresh router, clock and client for one test. */
export async function fixture(options: Partial<ClientOptions> = {}): Promise<Fixture> {
  const router = new ScriptedRouter();
  await router.start();
  onTestFinished(() => router.stop());
  const clock = new ManualClock();
  const events: ClientEvent[] = [];
  const another = (more: Partial<ClientOptions> = {}) => {
    const client = createClient({
      baseUrl: router.baseUrl,
      clock,
      onEvent: (event) => events.push(event),
      ...more,
    });
    onTestFinished(() => client.close());
    return client;
  };
  return { router, clock, client: another(options), events, another };
}

/** Polls until `assertion` holds. */
export function eventually<T>(assertion: () => T): Promise<T> {
  // As long as `until` waits: a busy machine may pause this process.
  return vi.waitFor(assertion, { timeout: 40_000, interval: 2 });
}

export function failure(status: number, code: string, headers: Record<string, string> = {}): Reply {
  return { status, json: { success: false, error: `It is ${code}.`, code }, headers };
}

/** An allocation of 15 minutes that starts at the clock's now. */
export function allocated(clock: ManualClock, more: Record<string, unknown> = {}): Reply {
  return {
    json: {
      success: true,
      pod_name: 'agent-1',
      ws_url: 'wss://voice.example.com/ws/pod/agent-1',
      source_pool: 'pool:gold',
      allocated_at: new Date(clock.now()).toISOString(),
      lease_expires_at: new Date(clock.now() + leaseMs).toISOString(),
      fence: 41,
      was_existing: false,
      ...more,
    },
  };
}

export const leaseMs = 15 * 60 * 1000;

export function renewed(clock: ManualClock): Reply {
  return { json: { success: true, lease_expires_at: new Date(clock.now() + leaseMs).toISOString() } };
}

export const released: Reply = {
  json: { success: true, pod_name: 'agent-1', released_to_pool: 'pool:gold', was_draining: false },
};

export function reported(more: Record<string, unknown> = {}): Reply {
  return { json: { success: true, renewed: [], adopted: [], ended: [], conflicts: [], ...more } };
}

/** A reply that the test gives when it likes. */
export function deferred(): { reply: Promise<Reply>; answer: (reply: Reply) => void } {
  let answer: (reply: Reply) => void = () => {};
  const reply = new Promise<Reply>((resolve) => {
    answer = resolve;
  });
  return { reply, answer };
}
