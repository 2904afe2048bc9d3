/**
 * Server-sent events: what happens to calls, pods and configuration, live, and again from `since`.
 *
 * The feed only rings; every listener reads the stream for itself from where it stands. So nothing is missed or
 * doubled when the feed starts late or starts over, and a listener that reads slowly holds one page in memory.
 */
import type { ServerResponse } from 'node:http';
import Type from 'typebox';
import type { StoreEvent } from '../../calls/events.js';
import { AppError } from '../../errors.js';
import { sessionOf } from '../auth.js';
import type { App, HttpContext } from '../context.js';
import { isDisconnected, withDeadline } from '../deadline.js';
import { ErrorAnswer, errorOf } from '../schemas.js';

const mostListeners = 100;
/** The longest an event is late when the feed has not rung: it is still connecting, or connects again. */
export const lookEveryMs = 1000;
/** Proxies close silent connections: after 15 looks without an event something is sent anyway. */
const looksPerHeartbeat = 15;
/** A listener that takes nothing for this long is cut off. */
export const stuckAfterMs = 30_000;
/** Events that come together are read together: at most 50 reads a second and listener. */
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
      schema: {
        tags: ['operators'],
        summary: 'Server-sent events; ?since= (or Last-Event-ID) replays what is kept',
        querystring: Query,
        response: {
          200: { description: 'a stream', content: { 'text/event-stream': { schema: Type.String() } } },
          400: ErrorAnswer,
          429: ErrorAnswer,
          503: errorOf('store_unavailable', 'timeout', 'shutting_down'),
        },
      },
    },
    async (request, reply) => {
      if (stopping.aborted) {
        throw new AppError('shutting_down', 'this router is stopping', { retryAfterSeconds: 1 });
      }
      if (listeners >= mostListeners) {
        throw new AppError(
          'too_many_requests',
          `${mostListeners} listeners are connected to this router already`,
          { retryAfterSeconds: 5 },
        );
      }
      const lastId = request.headers['last-event-id'];
      const resume = typeof lastId === 'string' && /^\d{1,16}-\d{1,19}$/.test(lastId) ? lastId : undefined;
      const since = request.query.since ?? resume;

      const ended = new AbortController();
      const end = () => ended.abort();
      const bell = new Bell(ended.signal);
      reply.raw.once('close', end);
      stopping.addEventListener('abort', end, { once: true });
      const unsubscribe = feed.subscribe(() => bell.ring());
      listeners += 1;
      // Whoever sent a key was judged by it; the others were let in for as long as their session lasts.
      const session =
        request.headers.authorization === undefined ? sessionOf(config, request, clock.now()) : undefined;
      if (session) void clock.sleep(session.expiresAtMs - clock.now(), ended.signal).then(end);
      try {
        const inTime = <T>(work: Promise<T>) => withDeadline(clock, config.requestTimeoutMs, work);
        const start = since ?? (await inTime(feed.latest(1)))[0]?.id ?? '0-0';
        const page = await inTime(feed.replay(start));
        if (isDisconnected(request)) end();
        reply.hijack();
        open(reply.raw, request.id);
        await stream(context, reply.raw, { start, page, bell, ended });
      } finally {
        end();
        listeners -= 1;
        unsubscribe();
        stopping.removeEventListener('abort', end);
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
  bell: Bell;
  ended: AbortController;
}

/** Resolves when the listener is gone, the router stops, or the store does not answer. Never rejects. */
async function stream(
  { feed, clock }: Pick<HttpContext, 'feed' | 'clock'>,
  raw: ServerResponse,
  { start, page, bell, ended }: Reader,
): Promise<void> {
  const { signal } = ended;
  let last = start;
  let next = page;
  let silentLooks = 0;
  try {
    while (!signal.aborted) {
      if (next.length > 0) raw.write(next.map(show).join(''));
      last = next.at(-1)?.id ?? last;
      if (raw.writableNeedDrain && !(await drained(raw, clock, signal))) return void raw.destroy();
      silentLooks = next.length === 0 ? silentLooks + 1 : 0;
      if (silentLooks > 0) {
        if (silentLooks % looksPerHeartbeat === 0) raw.write(': still here\n\n');
        if (await bell.heard(clock)) await clock.sleep(burstMs, signal);
      }
      if (!signal.aborted) next = await feed.replay(last);
    }
  } catch {
    // The store went away: the browser connects again and resumes from its last id.
  }
  raw.end();
}

function show({ id, type, at, fields }: StoreEvent): string {
  return `id: ${id}\nevent: ${type}\ndata: ${JSON.stringify({ ...fields, id, type, at })}\n\n`;
}

/** False when the listener has taken nothing for too long. */
async function drained(
  raw: ServerResponse,
  clock: HttpContext['clock'],
  signal: AbortSignal,
): Promise<boolean> {
  const done = new AbortController();
  const finish = () => done.abort();
  raw.once('drain', finish);
  signal.addEventListener('abort', finish, { once: true });
  await clock.sleep(stuckAfterMs, done.signal);
  raw.off('drain', finish);
  signal.removeEventListener('abort', finish);
  return done.signal.aborted;
}

/** Remembers that it was rung while nobody was waiting. */
class Bell {
  #rung = false;
  #wake = new AbortController();

  constructor(readonly ended: AbortSignal) {
    ended.addEventListener('abort', () => this.#wake.abort(), { once: true });
  }

  ring(): void {
    // Once is enough: abort() makes a new error with a stack trace every time (9 us), for every event and listener.
    if (this.#rung) return;
    this.#rung = true;
    this.#wake.abort();
  }

  /** Waits for the next ring; false when it is time to look without one, or the listener is gone. */
  async heard(clock: HttpContext['clock']): Promise<boolean> {
    if (!this.#rung && !this.ended.aborted) {
      this.#wake = new AbortController();
      await clock.sleep(lookEveryMs, this.#wake.signal);
    }
    const rung = this.#rung;
    this.#rung = false;
    return rung;
  }
}
