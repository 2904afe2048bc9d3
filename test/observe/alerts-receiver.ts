/** A receiver of alerts on loopback: keeps requests, and responds as the test says. */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Received {
  path: string | undefined;
  headers: IncomingHttpHeaders;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: any JSON.
  body: any;
}

export interface Receiver {
  readonly url: string;
  readonly received: Received[];
  /** The next responses in order; afterwards 202. 0 closes the connection. */
  answers: { status: number; headers?: Record<string, string> }[];
  end(): Promise<void>;
}

export async function startReceiver(path = '/alerts'): Promise<Receiver> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      received.push({ path: request.url, headers: request.headers, text, body: JSON.parse(text) });
      const { status, headers } = receiver.answers.shift() ?? { status: 202 };
      if (status === 0) request.socket.destroy();
      else response.writeHead(status, headers).end('{"status":"success"}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const receiver: Receiver = {
    url: `http://127.0.0.1:${port}${path}`,
    received,
    answers: [],
    end: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return receiver;
}
