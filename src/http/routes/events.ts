/** Server-sent events: what happens to calls, pods and configuration, live, and again from `since`. */
import Type from 'typebox';
import { compareEventIds, type StoreEvent } from '../../calls/events.js';
import { AppError } from '../../errors.js';
import type { App, HttpContext } from '../context.js';

const mostListeners = 100;
const heartbeatMs = 15_000;
/** A listener that does not read is cut off rather than remembered. */
const mostBufferedBytes = 1024 * 1024;

const Query = Type.Object({
  since: Type.Optional(
    Type.String({
      pattern: '^[0-9]{1,16}(-[0-9]{1,20})?$',
      description: 'an event id, or milliseconds since 1970',
    }),
  ),
});

export async function eventRoutes(app: App, { feed, clock, stopping }: HttpContext): Promise<void> {
  app.get(
    '/events',
    {
      schema: {
        tags: ['operators'],
        summary: 'Server-sent events; ?since= (or Last-Event-ID) replays what is kept',
        querystring: Query,
      },
    },
    async (request, reply) => {
      if (feed.listeners >= mostListeners) {
        throw new AppError(
          'too_many_requests',
          `${mostListeners} listeners are connected to this router already`,
          {
            retryAfterSeconds: 5,
          },
        );
      }
      const lastId = request.headers['last-event-id'];
      const resume = typeof lastId === 'string' && /^\d{1,16}-\d{1,20}$/.test(lastId) ? lastId : undefined;
      const since = request.query.since ?? resume;

      // Listen first, then replay, so that nothing falls between the two.
      let waiting: StoreEvent[] | undefined = [];
      let last = '0-0';
      const send = (event: StoreEvent) => {
        if (compareEventIds(event.id, last) <= 0) return;
        last = event.id;
        const data = JSON.stringify({ id: event.id, type: event.type, at: event.at, ...event.fields });
        raw.write(`id: ${event.id}\nevent: ${event.type}\ndata: ${data}\n\n`);
        if (raw.writableLength > mostBufferedBytes) raw.destroy();
      };
      const unsubscribe = feed.subscribe((event) => (waiting ? waiting.push(event) : send(event)));
      const { raw } = reply;
      let firstPage: StoreEvent[] = [];
      try {
        if (since !== undefined) firstPage = await feed.replay(since);
      } catch (error) {
        unsubscribe();
        throw error;
      }
      reply.hijack();
      raw.writeHead(200, {
        'content-type': 'text/event-stream',
        'cache-control': 'no-store',
        'x-accel-buffering': 'no',
        'x-request-id': request.id,
      });
      raw.write('retry: 2000\n\n');
      const ended = new AbortController();
      const end = () => {
        ended.abort();
        unsubscribe();
        raw.end();
      };
      raw.once('close', end);
      stopping.addEventListener('abort', end, { once: true });
      void beat(raw, clock, ended.signal);
      try {
        for (let page = firstPage; page.length > 0 && !ended.signal.aborted; page = await feed.replay(last))
          page.forEach(send);
      } catch {
        // The store went away while replaying: the browser connects again and resumes from its last id.
        end();
      }
      waiting.forEach(send);
      waiting = undefined;
    },
  );
}

/** Proxies close silent connections. */
async function beat(
  raw: { write(text: string): boolean },
  clock: HttpContext['clock'],
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await clock.sleep(heartbeatMs, signal);
    if (signal.aborted) return;
    raw.write(': still here\n\n');
  }
}
