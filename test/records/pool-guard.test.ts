import type { AddressInfo } from 'node:net';
import { createServer, type Server, type Socket } from 'node:net';
import pg from 'pg';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { migrate } from '../../src/records/index.js';
import { SessionError, Sessions } from '../../src/records/sessions.js';

/** A message of the protocol: its letter, its length, its body. */
function message(letter: string, ...body: (string | number[])[]): Buffer {
  const bytes = Buffer.concat(body.map((part) => Buffer.from(part as string)));
  const length = Buffer.alloc(4);
  length.writeInt32BE(bytes.length + 4);
  return Buffer.concat([Buffer.from(letter), length, bytes]);
}

const authenticated = message('R', [0, 0, 0, 0]);
const ready = message('Z', 'I');
const stopping = message('E', 'SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0');

/** A server that stops in the very moment in which it is ready: both words are one packet. */
let server: Server;
let pool: pg.Pool;
const sockets: Socket[] = [];

beforeEach(async () => {
  server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
    socket.once('data', () => socket.end(Buffer.concat([authenticated, ready, stopping])));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  pool = new pg.Pool({
    host: '127.0.0.1',
    port,
    user: 'anyone',
    password: 'any',
    database: 'any',
    ssl: false,
  });
});

afterEach(async () => {
  await pool.end();
  for (const socket of sockets.splice(0)) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

// Without the guard the test run itself ends with an uncaught exception.
it('a connection that breaks while it is acquired is a failed session', async () => {
  const sessions = new Sessions({ pool, clock: systemClock });
  await expect(sessions.query('SELECT 1', [])).rejects.toThrow(SessionError);
});

it('migrations on such a connection fail with its error', async () => {
  await expect(migrate(pool)).rejects.toThrow(/connection/i);
});
