/** The HTTP server of the sidecar: six routes on 127.0.0.1, JSON in and out, every error one line. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { AppError, ConfigError, type ErrorCode, messageOf } from '../errors.js';
import type { Log } from './log.js';
import type { PodCalls } from './pod-calls.js';

const maxBodyBytes = 4096;
const maxConnections = 1000;
const paths = 'PUT and DELETE /calls/{sid}, GET /calls, GET /health, GET /ready, POST /drain';

type Answer = Record<string, unknown>;
type Route = (request: IncomingMessage, sid: string) => Answer | Promise<Answer>;

export class AgentServer {
  readonly #podName: string;
  readonly #calls: PodCalls;
  readonly #log: Log;
  readonly #server: Server;

  constructor(podName: string, calls: PodCalls, log: Log) {
    this.#podName = podName;
    this.#calls = calls;
    this.#log = log;
    this.#server = createServer({ requestTimeout: 10_000, headersTimeout: 5000 }, (request, response) => {
      void this.#serve(request, response);
    });
    this.#server.maxConnections = maxConnections;
    this.#server.on('clientError', (_, socket) => {
      const body = errorBody('invalid_request', 'not a valid HTTP request');
      const head = `HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${body.length}`;
      if (socket.writable) socket.end(`${head}\r\n\r\n${body}`);
    });
  }

  /** Resolves to the port. */
  async listen(port: number): Promise<number> {
    this.#server.listen(port, '127.0.0.1');
    await once(this.#server, 'listening').catch((error: NodeJS.ErrnoException) => {
      const why = error.code === 'EADDRINUSE' ? 'the port is in use' : messageOf(error);
      throw new ConfigError([`cannot listen on 127.0.0.1:${port}: ${why}; set another AGENT_PORT`]);
    });
    return (this.#server.address() as AddressInfo).port;
  }

  /** Answers open requests and stops listening. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeIdleConnections();
    await closed;
  }

  /** Closes connections whose request is not answered yet. */
  cut(): void {
    this.#server.closeAllConnections();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let status = 200;
    let body: string;
    try {
      assertLocal(request);
      body = `${JSON.stringify(await this.#answer(request))}\n`;
    } catch (error) {
      const known = error instanceof AppError;
      if (!known) this.#log('warn', 'request failed', { error: messageOf(error) });
      status = known ? error.status : 500;
      body = errorBody(
        known ? error.code : 'internal',
        known ? error.message : 'unexpected error: see the log',
      );
      if (status === 429 || status === 503) response.setHeader('retry-after', '1');
      // The rest of a rejected body is not read.
      if (!request.complete) response.setHeader('connection', 'close');
    }
    response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
    response.end(body);
  }

  async #answer(request: IncomingMessage): Promise<Answer> {
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const sid = /^\/calls\/([^/]+)$/.exec(path)?.[1];
    const route = this.#routes[sid === undefined ? path : '/calls/{sid}'];
    if (route === undefined)
      throw new AppError('not_found', `no such path: ${path.slice(0, 100)}; there are ${paths}`);
    const answer = route[request.method ?? ''];
    if (answer) return answer(request, sid ?? '');
    const allowed = Object.keys(route).join(' or ');
    throw new AppError('method_not_allowed', `${path.slice(0, 100)} takes ${allowed} only`);
  }

  /** By path, then by method. */
  readonly #routes: Record<string, Record<string, Route | undefined> | undefined> = {
    '/calls/{sid}': {
      PUT: async (request, sid) => {
        const [callSid, fence] = [callSidOf(sid), fenceOf(await readBody(request))];
        return { success: true, call_sid: callSid, confirmed: await this.#calls.arrive(callSid, fence) };
      },
      DELETE: async (_, sid) => {
        const callSid = callSidOf(sid);
        const released = await this.#calls.end(callSid);
        if (released !== undefined) return { success: true, call_sid: callSid, released };
        const message = `no call ${callSid} here: it has ended, was lost, or never arrived`;
        throw new AppError('call_not_found', message);
      },
    },
    '/calls': {
      GET: () => {
        const { isDraining } = this.#calls;
        return { success: true, pod_name: this.#podName, is_draining: isDraining, calls: this.#calls.list() };
      },
    },
    '/health': { GET: () => ({ status: 'ok' }) },
    '/ready': {
      GET: () => {
        const { problem, isDraining } = this.#calls;
        if (isDraining) throw new AppError('shutting_down', 'this pod is draining');
        if (problem !== undefined) throw new AppError('router_unavailable', problem);
        return { status: 'ready' };
      },
    },
    '/drain': {
      POST: async () => {
        await this.#calls.drain();
        const { size } = this.#calls;
        // Only if it was stopped in the wait. A hook that believed an answer would cut these calls.
        if (size > 0) throw new AppError('shutting_down', `the sidecar stops with ${size} live calls`);
        return { success: true, pod_name: this.#podName, active_calls: 0 };
      },
    },
  };
}

function errorBody(code: ErrorCode, error: string): string {
  return `${JSON.stringify({ success: false, error, code })}\n`;
}

/**
 * Stops web pages on the same machine: one that points its own name at 127.0.0.1 (DNS rebinding) has that name in Host, and
 * any other has an Origin.
 */
function assertLocal({ headers: { host = '', origin } }: IncomingMessage): void {
  if (!/^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i.test(host))
    throw new AppError('forbidden', 'the Host must be localhost or 127.0.0.1');
  if (origin !== undefined) throw new AppError('forbidden', 'requests of web pages are not accepted');
}

function callSidOf(text: string): string {
  let callSid = '';
  try {
    callSid = decodeURIComponent(text);
  } catch {
    // The same error as for an empty one.
  }
  if (/^[^\p{Cc}]{1,256}$/u.test(callSid)) return callSid;
  throw new AppError(
    'invalid_request',
    'the call SID must be 1 to 256 characters without control characters, percent-encoded',
  );
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBodyBytes)
      throw new AppError('payload_too_large', `the body may have at most ${maxBodyBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The body is empty or `{"fence": 123}`. */
function fenceOf(text: string): number | undefined {
  if (text.trim() === '') return undefined;
  try {
    const { fence, ...more } = JSON.parse(text) as { fence?: unknown };
    const isFence =
      fence === undefined || fence === null || (Number.isSafeInteger(fence) && Number(fence) >= 0);
    if (isFence && Object.keys(more).length === 0) return (fence as number | null) ?? undefined;
  } catch {
    // The same error as for other JSON.
  }
  throw new AppError(
    'invalid_request',
    'the body must be empty or {"fence": <the integer of the allocation>}',
  );
}
