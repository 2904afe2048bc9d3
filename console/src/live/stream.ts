/**
 * The event stream of the router while the page is visible. It uses `fetch` instead of EventSource, which only receives
 * registered event types and does not distinguish a rejection (401, 429) from a broken connection.
 *
 * A hidden page has no stream: a browser opens at most six connections to a router, for all its tabs together.
 *
 * After a break it resumes after the last event, with exponential backoff and jitter, so that many consoles do not
 * reconnect at once. After more than a minute it starts with the next event instead, because the router would replay up to
 * 50,000. A connection on which nothing arrives counts as broken, also while it is being opened.
 */
import { request } from '../api';
import type { RouterEvent } from '../types';

const firstPauseMs = 500;
const maxPauseMs = 10_000;
/** The router sends a heartbeat every 15 s. */
const maxSilenceMs = 35_000;
const maxReplayMs = 60_000;

interface StreamListener {
  /** Connected. `hasGap`: missed events are not replayed, so the latest ones must be read. */
  opened(hasGap: boolean): void;
  heard(events: RouterEvent[]): void;
  broke(error: unknown): void;
}

export function followEvents({ opened, heard, broke }: StreamListener) {
  const over = new AbortController();
  let hurry = () => {};
  let last: string | undefined;
  /** By the wall clock, which goes on while the machine sleeps. */
  let receivedAt = Date.now();
  let hasGap = true;
  const follow = async () => {
    let pauseMs = firstPauseMs;
    for (;;) {
      await visible(over.signal);
      if (over.signal.aborted) return;
      const connection = new AbortController();
      let wasHidden = false;
      const hide = () => {
        wasHidden = true;
        connection.abort();
      };
      const silent = () => connection.abort(new Error('nothing arrived on the event stream'));
      let silence = setTimeout(silent, maxSilenceMs);
      try {
        document.addEventListener('visibilitychange', hide, { signal: connection.signal });
        if (last !== undefined && Math.abs(Date.now() - receivedAt) > maxReplayMs) {
          last = undefined;
          hasGap = true;
        }
        const signal = AbortSignal.any([over.signal, connection.signal]);
        const response = await request(last === undefined ? '/events' : `/events?since=${last}`, { signal });
        opened(hasGap);
        hasGap = false;
        for await (const events of batches(response)) {
          clearTimeout(silence);
          silence = setTimeout(silent, maxSilenceMs);
          receivedAt = Date.now();
          pauseMs = firstPauseMs;
          last = events.at(-1)?.id ?? last;
          if (events.length > 0) heard(events);
        }
        throw new Error('the event stream ended');
      } catch (error) {
        connection.abort();
        if (over.signal.aborted) return;
        // Nothing to resume after: events may have been missed.
        if (last === undefined) hasGap = true;
        if (wasHidden) continue;
        try {
          broke(error);
        } catch (thrown) {
          // A fault of the listener must not end the stream for good.
          console.error(thrown);
        }
      } finally {
        clearTimeout(silence);
      }
      await new Promise<void>((resolve) => {
        hurry = resolve;
        setTimeout(resolve, pauseMs * (0.5 + Math.random()));
      });
      if (over.signal.aborted) return;
      pauseMs = Math.min(pauseMs * 2, maxPauseMs);
    }
  };
  void follow();
  return {
    stop: () => over.abort(),
    /** Reconnects at once: the router answers again. */
    hurry: () => hurry(),
  };
}

async function visible(over: AbortSignal): Promise<void> {
  while (!over.aborted && document.hidden)
    await new Promise((resolve) => {
      const turn = new AbortController();
      const end = () => {
        turn.abort();
        resolve(undefined);
      };
      document.addEventListener('visibilitychange', end, { signal: turn.signal });
      over.addEventListener('abort', end, { signal: turn.signal });
    });
}

/** The events of each piece that arrives; none for a heartbeat. */
async function* batches({ body }: Response): AsyncGenerator<RouterEvent[]> {
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  for (let text = ''; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split('\n\n');
    text = blocks.pop() ?? '';
    yield blocks.flatMap(parse);
  }
}

/** Invalid events are skipped: failing on one would fail again after every reconnect. */
function parse(block: string): RouterEvent[] {
  const data = block.split('\n').find((one) => one.startsWith('data: '));
  if (data === undefined) return [];
  try {
    const event = JSON.parse(data.slice(6)) as RouterEvent | null;
    return typeof event?.id === 'string' && typeof event.type === 'string' ? [event] : [];
  } catch {
    return [];
  }
}
