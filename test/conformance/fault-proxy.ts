/**
 * An HTTP proxy that fails requests the way networks, proxies and overloaded servers do. The router behind it is real:
 * `lose_reply` and `truncate` fail after the router has done its work.
 */
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onOwnPort } from '../support/ports.js';
import type { FaultStep, Fields, Route } from './format.js';

export interface FaultProxy {
  readonly url: string;
  /** The port of the router; changes when the router restarts. */
  target: number;
  /** Every request of this case: its route and its body. */
  readonly received: { on: string; body: Fields }[];
  inject(fault: FaultStep): Promise<void>;
  /** Ends all faults, forgets the requests and cuts all connections. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

interface Fault extends FaultStep {
  left: number;
}

/** `/api/v1/pod/x/report` is `report`, the others are their last word. */
const routeOf = (path: string) => path.split('/').at(-1) as Route;

export async function startFaultProxy(): Promise<FaultProxy> {
  let faults: Fault[] = [];
  let target = 0;
  const received: FaultProxy['received'] = [];
  const server = createServer((request, response) => void serve(request, response));

  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    response.on('error', () => {});
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      return;
    }
    const body = Buffer.concat(chunks);
    const on = routeOf(request.url ?? '');
    received.push({ on, body: parse(body) });
    const fault = faults.find((one) => one.left > 0 && (one.on === undefined || one.on === on));
    if (fault !== undefined) fault.left -= 1;
    switch (fault?.fault) {
      case 'reset':
        request.socket.resetAndDestroy();
        return;
      case 'garbage':
        response.end('<html><body>Welcome to the guest network</body></html>');
        return;
      case 'redirect':
        response.writeHead(302, { location: `${url}/elsewhere` }).end();
        return;
      case 'answer': {
        const headers = fault.retry_after === undefined ? {} : { 'retry-after': String(fault.retry_after) };
        answer(response, fault.status ?? 500, fault.code ?? 'internal', 'injected by the test', headers);
        return;
      }
      case 'echo':
        answer(response, 400, 'invalid_request', `bad header:\n${request.headers.authorization}`);
        return;
      default:
        forward(request, body, response, fault?.fault);
    }
  };

  const forward = (
    request: IncomingMessage,
    body: Buffer,
    response: ServerResponse,
    fault: string | undefined,
  ) => {
    const { method, url: path, headers } = request;
    const abort = () => request.socket.resetAndDestroy();
    const outgoing = httpRequest({ host: '127.0.0.1', port: target, method, path, headers, agent: false });
    outgoing.on('error', abort);
    // A caller that closes its connection closes ours, as a transparent proxy would; not if its reply is to be lost.
    response.on('close', () => fault === undefined && outgoing.destroy());
    outgoing.on('response', async (incoming) => {
      const reply: Buffer[] = [];
      try {
        for await (const chunk of incoming) reply.push(chunk as Buffer);
      } catch {
        return abort();
      }
      if (fault === 'hang') return;
      if (fault === 'lose_reply') return abort();
      const text = Buffer.concat(reply);
      response.writeHead(incoming.statusCode ?? 502, { ...incoming.headers, 'content-length': text.length });
      if (fault !== 'truncate') response.end(text);
      else response.write(text.subarray(0, text.length / 2), () => request.socket.destroy());
    });
    outgoing.end(body);
  };

  const listen = (port: number) =>
    new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', resolve);
    });
  const unlisten = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });

  await onOwnPort(listen);
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const clear = async () => {
    faults = [];
    if (!server.listening) await listen(port);
  };
  return {
    url,
    get target() {
      return target;
    },
    set target(next) {
      target = next;
    },
    received,
    async inject(fault) {
      if (fault.fault === 'none') return clear();
      if (fault.fault === 'refuse') return unlisten();
      faults.push({ ...fault, left: fault.times ?? 1 });
    },
    async reset() {
      await clear();
      received.length = 0;
      server.closeAllConnections();
    },
    close: unlisten,
  };
}

function answer(
  response: ServerResponse,
  status: number,
  code: string,
  error: string,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify({ success: false, code, error }));
}

function parse(body: Buffer): Fields {
  try {
    return JSON.parse(body.toString()) as Fields;
  } catch {
    return {};
  }
}
