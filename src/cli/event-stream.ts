/**
 * The router's events as the command line reads them: what is kept (`readKept`), and what comes (`follow`).
 *
 * `follow` promises every event after its start exactly once, in order, for as long as the router keeps it: it resumes
 * from the last id it has seen, of whichever replica answers, and leaves out what is not newer than that. If the router
 * kept too few for the time it was away, `onGap` says so.
 */
import type { IncomingMessage } from 'node:http';
import type { Clock } from '../clock.js';
import type { RouterApi } from './api.js';
import { Failure, toFailure } from './failure.js';

export interface RouterEvent {
  readonly id: string;
  readonly type: string;
  readonly at: string;
  readonly [field: string]: unknown;
}

export interface EventFilter {
  readonly types?: readonly string[];
  readonly call?: string;
  readonly pod?: string;
}

interface SearchPage {
  events: RouterEvent[];
  before: string | null;
  kept_since: string | null;
}

/** The router sends something every 15 s: three times that is a connection nobody serves any more. */
const silentMs = 45_000;
const firstRetryMs = 250;
const longestRetryMs = 5000;
const pageSize = 500;
/** About 50,000 are kept; a router that never ends its list is not followed for ever. */
const mostPages = 1000;
/** A router without a search sends what it keeps at once: after so long a silence there is no more. */
const replayQuietMs = 1000;
const longestBlock = 1024 * 1024;

export function matches(event: RouterEvent, { types, call, pod }: EventFilter): boolean {
  if (types !== undefined && !types.includes(event.type)) return false;
  if (call !== undefined && event.call !== call) return false;
  return pod === undefined || event.pod === pod;
}

/** By number: `9-0` is before `10-0`. A bare number of milliseconds is the beginning of that millisecond. */
export function isAfter(id: string, other: string): boolean {
  const [ms = '0', sequence = '0'] = id.split('-');
  const [otherMs = '0', otherSequence = '0'] = other.split('-');
  if (ms !== otherMs) return BigInt(ms) > BigInt(otherMs);
  return BigInt(sequence) > BigInt(otherSequence);
}

/** The newest `limit` events after `since` that match, oldest first. */
export async function readKept(
  api: RouterApi,
  clock: Clock,
  filter: EventFilter,
  { since, limit }: { since: string; limit: number },
): Promise<RouterEvent[]> {
  const found = await search(api, filter, since, limit);
  if (found) return found;
  const all: RouterEvent[] = [];
  await replay(api, clock, since, (event) => {
    if (matches(event, filter)) all.push(event);
    if (all.length > limit) all.shift();
  });
  return all;
}

/** The same; undefined if this router has no search. */
export async function search(
  api: RouterApi,
  filter: EventFilter,
  since: string,
  limit: number,
): Promise<RouterEvent[] | undefined> {
  const found: RouterEvent[] = [];
  let before: string | null = null;
  for (let page = 0; page < mostPages; page++) {
    const query = new URLSearchParams({ limit: String(Math.min(pageSize, limit - found.length)) });
    if (filter.types) query.set('type', filter.types.join(','));
    if (filter.call !== undefined) query.set('call', filter.call);
    if (filter.pod !== undefined) query.set('pod', filter.pod);
    if (before !== null) query.set('before', before);
    const body = await searchPage(api, query);
    if (!body) return undefined;
    const newer = body.events.filter(({ id }) => isAfter(id, since));
    found.push(...newer.filter((event) => matches(event, filter)));
    before = newer.length < body.events.length ? null : body.before;
    if (before === null || !isAfter(before, since) || found.length >= limit) break;
  }
  return found.slice(0, limit).reverse();
}

async function searchPage(api: RouterApi, query: URLSearchParams): Promise<SearchPage | undefined> {
  try {
    return (await api.send<SearchPage>(`/events/search?${query}`, { has: 'events' })).body;
  } catch (error) {
    if (error instanceof Failure && error.code === 'not_found') return undefined;
    throw error;
  }
}

async function replay(
  api: RouterApi,
  clock: Clock,
  since: string,
  onEvent: (event: RouterEvent) => void,
): Promise<void> {
  const over = new AbortController();
  const stream = await api.open(`/events?since=${since}`, over.signal);
  try {
    await readBlocks(stream, clock, replayQuietMs, onEvent);
  } finally {
    over.abort();
  }
}

/** Where "from now on" begins: behind the newest event, so that a connection that breaks at once loses nothing. */
export async function newestId(api: RouterApi, routerNowMs: number): Promise<string> {
  const page = await searchPage(api, new URLSearchParams({ limit: '1' }));
  // Without a search the router's clock has to do; its header has whole seconds, so it begins with the one before.
  return page
    ? (page.events[0]?.id ?? '0-0')
    : String(Math.max(0, Math.floor(routerNowMs / 1000) * 1000 - 1));
}

export interface Following {
  since: string;
  signal: AbortSignal;
  onEvent(event: RouterEvent): void;
  /** Undefined: it is there again. */
  onLost?(failure: Failure | undefined): void;
  /** Events after the last seen were there and are kept no longer; this is when the kept ones begin. */
  onGap?(keptSince: string): void;
}

/** Resolves when `signal` aborts. Rejects if it cannot begin, and later only when the key is refused. */
export async function follow(api: RouterApi, clock: Clock, following: Following): Promise<void> {
  const { signal, onEvent, onLost, onGap } = following;
  let last = following.since;
  let begun = false;
  let lost = false;
  let retryMs = firstRetryMs;
  while (!signal.aborted) {
    const connection = new AbortController();
    try {
      const both = AbortSignal.any([signal, connection.signal]);
      const stream = await api.open(`/events?since=${last}`, both);
      if (lost) {
        onLost?.(undefined);
        const keptSince = await keptOnlySince(api, last);
        if (keptSince !== undefined) onGap?.(keptSince);
      }
      [begun, lost] = [true, false];
      await readBlocks(stream, clock, silentMs, (event) => {
        retryMs = firstRetryMs;
        if (!isAfter(event.id, last)) return;
        last = event.id;
        onEvent(event);
      });
      throw new Failure('unreachable', `the stream of events of ${api.baseUrl} ended.`);
    } catch (error) {
      if (signal.aborted) return;
      const failure = toFailure(error);
      if (!begun || failure.code === 'failed' || isRefusal(failure)) throw failure;
      if (!lost) onLost?.(failure);
      lost = true;
      await clock.sleep(retryMs, signal);
      retryMs = Math.min(longestRetryMs, retryMs * 2);
    } finally {
      connection.abort();
    }
  }
}

const isRefusal = ({ code }: Failure) => ['unauthorized', 'forbidden', 'invalid_request'].includes(code);

async function keptOnlySince(api: RouterApi, last: string): Promise<string | undefined> {
  try {
    const keptSince = (await searchPage(api, new URLSearchParams({ limit: '1' })))?.kept_since;
    if (!keptSince) return undefined;
    return Date.parse(keptSince) > Number(last.split('-')[0]) ? keptSince : undefined;
  } catch {
    // The stream itself is there; whether something is missing cannot be known now.
    return undefined;
  }
}

/** Resolves at the end of the stream, when it breaks, and after `quietMs` without a byte. */
async function readBlocks(
  stream: IncomingMessage,
  clock: Clock,
  quietMs: number,
  onEvent: (event: RouterEvent) => void,
): Promise<void> {
  let rest = '';
  let problem: unknown;
  let cancel = () => {};
  const listenOn = () => {
    cancel();
    cancel = clock.after(quietMs, () => stream.destroy());
  };
  listenOn();
  stream.setEncoding('utf8').on('data', (text: string) => {
    listenOn();
    try {
      const blocks = (rest + text).split('\n\n');
      rest = blocks.pop() ?? '';
      if (rest.length > longestBlock) throw new Failure('not_a_router', 'an event has no end');
      for (const block of blocks) {
        const event = toEvent(block);
        if (event) onEvent(event);
      }
    } catch (error) {
      problem = error;
      stream.destroy();
    }
  });
  await new Promise<void>((resolve) => {
    stream.on('error', () => resolve());
    stream.once('close', () => resolve());
  });
  cancel();
  if (problem) throw problem;
}

/** Undefined for comments and for what is no event. */
function toEvent(block: string): RouterEvent | undefined {
  const data = block
    .split('\n')
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice('data:'.length).trimStart())
    .join('\n');
  if (data === '') return undefined;
  try {
    const value = JSON.parse(data) as RouterEvent;
    return /^\d+-\d+$/.test(value.id) && typeof value.type === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}
