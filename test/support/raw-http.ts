/** A connection that a test holds in its own hands: it may hang up, stop reading, or send half a request. */
import { connect, type Socket } from 'node:net';

export interface RawConnection {
  socket: Socket;
  /** Everything received so far. */
  text(): string;
  closed: Promise<void>;
}

export async function rawConnection(port: number): Promise<RawConnection> {
  const socket = connect(port, '127.0.0.1');
  let received = '';
  socket.on('data', (chunk) => {
    received += chunk.toString();
  });
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  socket.on('error', () => undefined);
  return { socket, text: () => received, closed };
}

/** A POST of JSON to a path under `/api/v1`, as bytes. */
export function postBytes(path: string, body: unknown): string {
  const text = JSON.stringify(body);
  return [
    `POST /api/v1${path} HTTP/1.1`,
    'host: 127.0.0.1',
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(text)}`,
    '',
    text,
  ].join('\r\n');
}
