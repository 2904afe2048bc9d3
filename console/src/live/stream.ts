/**
 * The event stream of the router while the page is visible. It uses `fetch` instead of EventSource, which only receives
 * registered event types and does not distinguish a rejection (401, 429) from a broken connection.
 *
 * A hidden page has no stream: a browser opens at most six connections to a router, for all its tabs together.
 *
 * After a break it resumes after the last event, with exponential backoff and jitter, so that many consoles do not
 * reconnect at once. A connection without a heartbeat counts as broken.
 */
import { request } from '../api';
import type { RouterEvent } from '../types';

const firstPauseMs = 500;
const maxPauseMs = 10_000;
/** The router sends a heartbeat every 15 s. */
const maxSilenceMs = 35_000;

interface StreamListener {
  /** Connected; after a break events may have been missed. */
  opened(): void;
  heard(events: RouterEvent[]): void;
  broke(error: unknown): void;
}

export function followEvents({ opened, heard, broke }: StreamListener) {
  const over = new AbortController();
  let hurry = () => {};
  let last: string | undefined;
  const follow = async () => {
    let pauseMs = firstPauseMs;
    for (;;) {
      await visible();
      const line = new AbortController();
      let wasHidden = false;
      const hide = () => {
        wasHidden = true;
        line.abort();
      };
      document.addEventListener('visibilitychange', hide, { signal: line.signal });
      try {
        const signal = AbortSignal.any([over.signal, line.signal]);
        const response = await request(last === undefined ? '/events' : `/events?since=${last}`, { signal });
        opened();
        pauseMs = firstPauseMs;
        await read(response, line, (events) => {
          last = events.at(-1)?.id ?? last;
          heard(events);
        });
        throw new Error('the event stream ended');
      } catch (error) {
        line.abort();
        if (over.signal.aborted) return;
        if (wasHidden) continue;
        broke(error);
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

async function visible(): Promise<void> {
  while (document.hidden)
    await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
}

async function read(response: Response, line: AbortController, heard: (events: RouterEvent[]) => void) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let silence = setTimeout(() => line.abort(), maxSilenceMs);
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => line.abort(), maxSilenceMs);
      const blocks = (text + value).split('\n\n');
      text = blocks.pop() ?? '';
      const events = blocks.flatMap(parse);
      if (events.length > 0) heard(events);
    }
  } finally {
    clearTimeout(silence);
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
