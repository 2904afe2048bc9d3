/** The event list of the console when its tab is hidden, on a clock that the test moves. The router is a stub of `fetch`. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

class Page extends EventTarget {
  hidden = false;

  show(isShown: boolean): void {
    this.hidden = !isShown;
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

interface TestEvent {
  id: string;
  type: string;
}

/** Keeps all events, streams them, and replays them from `since`. */
class EventRouter {
  readonly events: TestEvent[] = [];
  readonly opened: string[] = [];
  failingSearches = 0;
  rejectedStreams = 0;
  readonly #streams = new Set<ReadableStreamDefaultController<Uint8Array>>();

  emit(): void {
    this.emitLater()();
  }

  /** Stores an event; returns the function that streams it. */
  emitLater(): () => void {
    const event = { id: `${this.events.length + 1}-0`, type: 'pod_registered' };
    this.events.push(event);
    return () => {
      for (const stream of this.#streams) send(stream, event);
    };
  }

  readonly fetch = async (url: string, { signal }: { signal: AbortSignal }): Promise<Response> => {
    signal.throwIfAborted();
    if (url.includes('/events/search')) {
      if (this.failingSearches-- > 0) throw new TypeError('no answer');
      return Response.json({ events: this.events.slice(-100).reverse() });
    }
    if (url.includes('/events') && this.rejectedStreams-- > 0)
      return Response.json({ error: 'router overloaded', code: 'overloaded' }, { status: 503 });
    if (url.includes('/events')) return this.#stream(url, signal);
    return Response.json({ leader: 'a', records: null, alerts: [] });
  };

  #stream(url: string, signal: AbortSignal): Response {
    this.opened.push(url);
    const since = /since=(.*)/.exec(url)?.[1];
    const from = since === undefined ? Infinity : this.events.findIndex(({ id }) => id === since) + 1;
    const body = new ReadableStream<Uint8Array>({
      start: (stream) => {
        this.#streams.add(stream);
        signal.addEventListener('abort', () => {
          this.#streams.delete(stream);
          stream.error(signal.reason);
        });
        for (const event of this.events.slice(from)) send(stream, event);
      },
    });
    return new Response(body);
  }
}

function send(stream: ReadableStreamDefaultController<Uint8Array>, event: TestEvent): void {
  stream.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`));
}

const unanswered = (_: string, { signal }: { signal: AbortSignal }) =>
  new Promise<Response>((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });

interface Live {
  start(): void;
  stop(): void;
  state: { events: TestEvent[]; heard: number; trims: number; staleSince: number | undefined };
}

let page: Page;
let router: EventRouter;
let live: Live;
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);
const listed = () => live.state.events.map(({ id }) => id);
const all = () => router.events.map(({ id }) => id);

function delaySearches(ms: number): void {
  vi.stubGlobal('fetch', async (url: string, options: { signal: AbortSignal }) => {
    if (url.includes('/events/search')) await new Promise((resolve) => setTimeout(resolve, ms));
    return router.fetch(url, options);
  });
}

beforeEach(async () => {
  vi.useFakeTimers();
  page = new Page();
  router = new EventRouter();
  vi.stubGlobal('document', page);
  vi.stubGlobal('requestAnimationFrame', (callback: () => void) => setTimeout(callback, 16));
  vi.stubGlobal('fetch', router.fetch);
  // Made for a browser, and so not for the compiler of these tests.
  const path = '../../console/src/live/live.js';
  const { Live } = (await import(path)) as { Live: new () => Live };
  live = new Live();
});
afterEach(() => {
  live.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it.each([
  ['5 s, with an event before', 1, 5000],
  ['5 s, without an event before', 0, 5000],
  ['10 minutes, with an event before', 1, 600_000],
  ['10 minutes, without an event before', 0, 600_000],
])('lists the events of a hidden tab: %s', async (_, before, ms) => {
  router.emit();
  live.start();
  await pass(100);
  for (let i = 0; i < before; i++) router.emit();
  await pass(100);
  page.show(false);
  await pass(ms);
  router.emit();
  page.show(true);
  await pass(100);
  router.emit();
  await pass(100);
  expect(listed()).toEqual(all());
});

it('lists the events of a tab that was opened hidden', async () => {
  page.hidden = true;
  router.emit();
  live.start();
  await pass(1000);
  router.emit();
  expect(router.opened).toEqual([]);
  page.show(true);
  await pass(100);
  expect(listed()).toEqual(all());
});

it('lists the events from before the first stream, which was opened late', async () => {
  vi.stubGlobal('fetch', async (url: string, options: { signal: AbortSignal }) => {
    if (/\/events(\?|$)/.test(url)) await new Promise((resolve) => setTimeout(resolve, 300));
    return router.fetch(url, options);
  });
  router.emit();
  live.start();
  await pass(100);
  expect(listed()).toEqual(all());
  router.emit();
  await pass(1000);
  expect(listed()).toEqual(all());
});

it('lists an event in its place that a search finds before the stream delivers it', async () => {
  router.emit();
  live.start();
  await pass(100);
  router.emit();
  await pass(100);
  page.show(false);
  await pass(61_000);
  delaySearches(120);
  page.show(true);
  await pass(100);
  router.emit();
  await pass(10);
  const deliver = router.emitLater();
  await pass(20);
  deliver();
  await pass(100);
  expect(listed()).toEqual(all());
});

it('lists each event once, in order, if a search is far ahead of the stream', async () => {
  live.start();
  await pass(100);
  const deliver = Array.from({ length: 300 }, () => router.emitLater());
  for (const one of deliver.splice(0, 50)) one();
  await pass(100);
  page.show(false);
  await pass(61_000);
  page.show(true);
  await pass(100);
  expect(listed()).toEqual(all().slice(200));
  for (const one of deliver) one();
  await pass(100);
  expect(listed()).toEqual(all().slice(50));
});

it('keeps the list, and counts each new event once, if a search reaches back to the last event', async () => {
  for (let i = 0; i < 120; i++) router.emit();
  live.start();
  await pass(100);
  expect(live.state).toMatchObject({ heard: 0, trims: 1 });
  for (let i = 0; i < 5; i++) {
    page.show(false);
    await pass(61_000);
    router.emit();
    page.show(true);
    await pass(100);
  }
  expect(live.state).toMatchObject({ heard: 5, trims: 1 });
  expect(listed()).toEqual(all().slice(20));
});

it('drops the events before a gap that a search does not reach back to', async () => {
  for (let i = 0; i < 10; i++) router.emit();
  live.start();
  await pass(100);
  page.show(false);
  await pass(61_000);
  for (let i = 0; i < 150; i++) router.emit();
  page.show(true);
  await pass(100);
  expect(listed()).toEqual(all().slice(-100));
  expect(live.state).toMatchObject({ heard: 100, trims: 2 });
});

it('lists events in order if a search has only those after the latest one of the stream', async () => {
  router.emit();
  live.start();
  await pass(100);
  page.show(false);
  await pass(61_000);
  delaySearches(120);
  page.show(true);
  await pass(100);
  router.emit();
  const deliver = Array.from({ length: 120 }, () => router.emitLater());
  await pass(100);
  expect(listed()).toEqual([all()[1], ...all().slice(-100)]);
  for (const one of deliver) one();
  await pass(100);
  expect(listed()).toEqual(all().slice(1));
});

it.each([
  ['reaches back to all events', 10, 0],
  ['does not reach back to them', 150, 53],
])(
  'has no hole after two gaps if the search of the first one fails and that of the second %s',
  async (_, missed, first) => {
    router.emit();
    live.start();
    await pass(100);
    page.show(false);
    await pass(61_000);
    router.failingSearches = Infinity;
    page.show(true);
    await pass(100);
    for (let i = 0; i < 2; i++) router.emit();
    await pass(100);
    page.show(false);
    await pass(61_000);
    for (let i = 0; i < missed; i++) router.emit();
    router.failingSearches = 0;
    page.show(true);
    await pass(100);
    expect(listed()).toEqual(all().slice(first));
  },
);

it('lists events in order although more arrive than a search has', async () => {
  delaySearches(1000);
  live.start();
  await pass(100);
  for (let i = 0; i < 150; i++) router.emit();
  await pass(2000);
  expect(listed()).toEqual(all());
});

it('lists the events from before the first stream, which was rejected at first', async () => {
  router.rejectedStreams = 1;
  router.emit();
  live.start();
  await pass(100);
  router.emit();
  await pass(5000);
  router.emit();
  await pass(100);
  expect(listed()).toEqual(all());
});

it('lists the events of a tab that was hidden while its first stream was being opened', async () => {
  const { fetch } = router;
  vi.stubGlobal('fetch', (url: string, options: { signal: AbortSignal }) =>
    /\/events(\?|$)/.test(url) ? unanswered(url, options) : fetch(url, options),
  );
  router.emit();
  live.start();
  await pass(100);
  vi.stubGlobal('fetch', fetch);
  page.show(false);
  await pass(600_000);
  router.emit();
  page.show(true);
  await pass(100);
  router.emit();
  await pass(100);
  expect(listed()).toEqual(all());
});

it('lists the events of a new session in order', async () => {
  router.emit();
  live.start();
  await pass(100);
  router.emit();
  await pass(100);
  live.stop();
  router.emit();
  live.start();
  await pass(100);
  router.emit();
  await pass(100);
  expect(listed()).toEqual(all());
});

it('opens the stream again although the listener of its end throws', async () => {
  const logged = vi.spyOn(console, 'error').mockImplementation(() => {});
  const path = '../../console/src/live/stream.js';
  const { followEvents } = (await import(path)) as {
    followEvents(listener: { opened(): void; heard(): void; broke(): void }): { stop(): void };
  };
  router.rejectedStreams = 2;
  const stream = followEvents({
    opened: () => {},
    heard: () => {},
    broke: () => {
      throw new Error('fault of the listener');
    },
  });
  await pass(10_000);
  stream.stop();
  expect([router.opened.length, logged.mock.calls.length]).toEqual([1, 2]);
  logged.mockRestore();
});

it('lists the events of a tab that is hidden again before the first event after a gap', async () => {
  live.start();
  await pass(100);
  router.emit();
  await pass(100);
  page.show(false);
  await pass(61_000);
  page.show(true);
  await pass(100);
  page.show(false);
  await pass(100);
  router.emit();
  page.show(true);
  await pass(100);
  expect(listed()).toEqual(all());
});

it('reads the events again if that failed after a gap', async () => {
  live.start();
  await pass(100);
  router.emit();
  await pass(100);
  page.show(false);
  await pass(61_000);
  router.emit();
  router.failingSearches = 1;
  page.show(true);
  await pass(100);
  router.emit();
  await pass(10_000);
  expect(listed()).toEqual(all());
});

it('has one stream while its tab is shown, none while it is hidden, and none after the end', async () => {
  live.start();
  for (let i = 0; i < 100; i++) {
    page.show(false);
    page.show(true);
    await pass(1);
  }
  const { length } = router.opened;
  page.show(false);
  await pass(100);
  live.stop();
  page.show(true);
  await pass(100_000);
  expect(router.opened).toHaveLength(length);
});

it('opens a stream again that is not answered within 35 s', async () => {
  const silent = vi.fn(unanswered);
  vi.stubGlobal('fetch', (url: string, options: { signal: AbortSignal }) =>
    /\/events(\?|$)/.test(url) ? silent(url, options) : router.fetch(url, options),
  );
  live.start();
  await pass(34_000);
  expect([silent.mock.calls.length, live.state.staleSince]).toEqual([1, undefined]);
  await pass(2000);
  expect(silent).toHaveBeenCalledTimes(2);
  expect(live.state.staleSince).toBeDefined();
});
