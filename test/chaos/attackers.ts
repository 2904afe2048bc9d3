/**
 * Clients without a key that try to exhaust a router: incomplete bodies, unread replies,
 * and floods of requests that the router rejects. Known callers must not notice.
 */
import { connect, type Socket } from 'node:net';

export type Attack = (port: number) => () => void;

/** More than a router has places for requests. */
const slowConnections = 1500;
const unreadConnections = 400;
/** Each sends its next request when the previous one was answered: the machine also runs everything else. */
const floodConnections = 8;
/** Another address than that of the known callers, as it would be in a network. */
const localAddress = '127.0.0.2';

const requestText = (line: string, headers: readonly string[], body = '') =>
  [`${line} HTTP/1.1`, 'host: router', ...headers, '', body].join('\r\n');
const formHeaders = (length: number) => [
  'content-type: application/x-www-form-urlencoded',
  `content-length: ${length}`,
  'x-twilio-signature: d3Jvbmc=',
];

/** Opens connections until it is stopped; one that the router closes is replaced. */
function connections(port: number, count: number, onOpen: (socket: Socket) => void): () => void {
  const open = new Set<Socket>();
  let isStopped = false;
  const add = () => {
    const socket = connect({ port, host: '127.0.0.1', localAddress }, () => onOpen(socket));
    open.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      open.delete(socket);
      // Not at once: a router that is down refuses thousands of connections a second.
      if (!isStopped) setTimeout(() => isStopped || add(), 500);
    });
  };
  for (let i = 0; i < count; i += 1) add();
  return () => {
    isStopped = true;
    for (const socket of open) socket.destroy();
  };
}

export const slowBodies: Attack = (port) =>
  connections(port, slowConnections, (socket) => {
    socket.write(requestText('POST /api/v1/twilio/status', formHeaders(1000), 'CallSid='));
    socket.resume();
  });

export const unreadAnswers: Attack = (port) =>
  connections(port, unreadConnections, (socket) => {
    socket.pause();
    socket.write(requestText('GET /api/v1/events', []) + requestText('GET /', []).repeat(14));
  });

const manyFields = Array.from({ length: 995 }, (_, i) => `field${i}=value`).join('&');
const rejected = [
  requestText(
    'POST /api/v1/allocate',
    ['content-type: application/json', 'authorization: Bearer wrong', 'content-length: 18'],
    '{"call_sid":"CA0"}',
  ),
  requestText('POST /api/v1/twilio/allocate', formHeaders(manyFields.length), manyFields),
  requestText('GET /metrics', []),
  requestText('GET /api/v1/nothing', []),
  requestText('GET /ready', []),
];

export const rejectedRequests: Attack = (port) =>
  connections(port, floodConnections, (socket) => {
    let sent = 0;
    const next = () => {
      socket.write(rejected[sent % rejected.length] ?? '');
      sent += 1;
    };
    // An answer may come in several pieces: then the next request follows early, which is as good a flood.
    socket.on('data', next);
    next();
  });
