/**
 * Server-sent events about calls, pods and configuration: live, and replayed from `since`.
 *
 * The feed only wakes listeners; each one reads the stream from its own position. So no event is missed or sent twice when
 * the feed starts late or reconnects, and a slow listener holds one page in memory.
 */
import type { ServerResponse } from 'node:http';
import Type from 'typebox';
import type { StoreEvent } from '../../calls/events.js';
import { abortWith, type Clock, WakeableSleep } from '../../clock.js';
import { AppError } from '../../errors.js';
import { sessionOf } from '../auth.js';
import { type App, documented, type HttpContext } from '../context.js';
import { inTime, isDisconnected } from '../deadline.js';
import { ErrorAnswer, errorOf } from '../schemas.js';

const maxListeners = 100;
/** The maximum delay of an event while the feed does not wake its listeners because it is connecting. */
export const pollEveryMs = 1000;
/** Proxies close silent connections: a heartbeat follows 15 polls without an event. */
const pollsPerHeartbeat = 15;
/** A listener that reads nothing for this long is disconnected. */
export const stuckAfterMs = 30_000;
/** Reads the events of a burst together: at most 50 reads a second per listener. */
const burstMs = 20;

const Query = Type.Object({
  since: Type.Optional(
    Type.String({
      pattern: '^[0-9]{1,16}(-[0-9]{1,19})?$',
      description: 'an event id, or milliseconds since 1970',
    }),
  ),
});

export async function eventRoutes(app: App, context: HttpContext): Promise<void> {
  const { feed, clock, config, stopping } = context;
  let listeners = 0;

  app.get(
    '/events',
    {
      exposeHeadRoute: false,
      ...documented('operators')('Server-sent events; ?since= (or Last-Event-ID) replays kept events', {
        querystring: Query,
        response: {
          200: { description: 'a stream', content: { 'text/event-stream': { schema: Type.String() } } },
          400: ErrorAnswer,
          429: ErrorAnswer,
          503: errorOf('store_unavailable', 'timeout', 'shutting_down'),
        },
      }),
    },
    async (request, reply) => {
      if (stopping.aborted) {
        throw new AppError('shutting_down', 'this router is stopping', { retryAfterSeconds: 1 });
      }
      if (listeners >= maxListeners) {
        throw new AppError(
          'too_many_requests',
          `this router already has ${maxListeners} listeners; retry later or use another replica`,
          { retryAfterSeconds: 5 },
        );
      }
      const lastId = request.headers['last-event-id'];
      const resume = typeof lastId === 'string' && /^\d{1,16}-\d{1,19}$/.test(lastId) ? lastId : undefined;
      const since = request.query.since ?? resume;

      const ended = new AbortController();
      const end = () => ended.abort();
      const sleep = new WakeableSleep(clock);
      reply.raw.once('close', end);
      const unlink = abortWith(ended, stopping);
      const unsubscribe = feed.subscribe(() => sleep.wake());
      listeners += 1;
      // A listener without a key is connected for as long as its session lasts.
      const session =
        request.headers.authorization === undefined ? sessionOf(config, request, clock.now()) : undefined;
      if (session) void clock.sleep(session.expiresAtMs - clock.now(), ended.signal).then(end);
      try {
        const start = since ?? (await inTime(context, feed.newestId()));
        const page = await inTime(context, feed.replay(start));
        if (isDisconnected(request)) end();
        reply.hijack();
        open(reply.raw, request.id);
        await stream(context, reply.raw, { start, page, sleep, ended });
      } finally {
        end();
        listeners -= 1;
        unsubscribe();
        unlink();
      }
    },
  );
}

function open(raw: ServerResponse, requestId: string): void {
  raw.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    'x-request-id': requestId,
    connection: 'close',
  });
  raw.write('retry: 2000\n\n');
}

interface Reader {
  start: string;
  page: StoreEvent[];
  sleep: WakeableSleep;
  ended: AbortController;
}

/** Resolves when the listener disconnects, the router stops, or the store is unreachable. Never rejects. */
async function stream(
  { feed, clock }: Pick<HttpContext, 'feed' | 'clock'>,
  raw: ServerResponse,
  { start, page, sleep, ended }: Reader,
): Promise<void> {
  const { signal } = ended;
  let last = start;
  let next = page;
  let silentPolls = 0;
  try {
    while (!signal.aborted) {
      if (next.length > 0) raw.write(next.map(show).join(''));
      last = next.at(-1)?.id ?? last;
      if (raw.writableNeedDrain && !(await drained(raw, clock, signal))) return void raw.destroy();
      silentPolls = next.length === 0 ? silentPolls + 1 : 0;
      if (silentPolls > 0) {
        if (silentPolls % pollsPerHeartbeat === 0) raw.write(': heartbeat\n\n');
        if (await sleep.for(pollEveryMs, signal)) await clock.sleep(burstMs, signal);
      }
      if (!signal.aborted) next = await feed.replay(last);
    }
  } catch {
    // The store is unreachable: the browser reconnects and resumes from its last id.
  }
  raw.end();
}

function show({ id, type, at, fields }: StoreEvent): string {
  return `id: ${id}\nevent: ${type}\ndata: ${JSON.stringify({ ...fields, id, type, at })}\n\n`;
}

/** False when the listener has read nothing for `stuckAfterMs`. */
async function drained(raw: ServerResponse, clock: Clock, signal: AbortSignal): Promise<boolean> {
  const done = new AbortController();
  const finish = () => done.abort();
  const unlink = abortWith(done, signal);
  raw.once('drain', finish);
  await clock.sleep(stuckAfterMs, done.signal);
  raw.off('drain', finish);
  unlink();
  return done.signal.aborted;
}
