/**
 * Reads the router's events: kept ones (`searchEvents`) and new ones (`follow`).
 *
 * `follow` delivers every event after its start exactly once and in order: after a disconnect it resumes from the last
 * id, on any replica, and drops events that are not newer. If the router no longer keeps some of them, `onGap` reports
 * it.
 */

import type { IncomingMessage } from 'node:http';
import { abortWith, type Clock } from '../clock.js';
import type { RouterApi } from './api.js';
import { Failure, toFailure } from './failure.js';
import type { FoundEvents, RouterEvent } from './replies.js';

export interface EventFilter {
  readonly type?: readonly string[];
  readonly call?: string;
  readonly pod?: string;
}

/** The router sends data every 15 s; after three times that the connection is dead. */
const silenceTimeoutMs = 45_000;
const minRetryMs = 250;
const maxRetryMs = 5000;
const pageSize = 500;
/** About 50,000 events are kept; a broken router must not keep us reading. */
const maxPages = 1000;
const maxBlockLength = 1024 * 1024;

export function matches(event: RouterEvent, { type, call, pod }: EventFilter): boolean {
  if (type !== undefined && !type.includes(event.type)) return false;
  if (call !== undefined && event.call !== call) return false;
  return pod === undefined || event.pod === pod;
}

/** Compares numbers: `9-0` is before `10-0`. Bare milliseconds mean the start of that millisecond. */
export function isAfter(id: string, other: string): boolean {
  const [ms = '0', sequence = '0'] = id.split('-');
  const [otherMs = '0', otherSequence = '0'] = other.split('-');
  if (ms !== otherMs) return BigInt(ms) > BigInt(otherMs);
  return BigInt(sequence) > BigInt(otherSequence);
}

/** The newest `limit` events after `since` that match, oldest first. */
export async function searchEvents(
  api: RouterApi,
  { type, call, pod }: EventFilter,
  { since, limit }: { since: string; limit: number },
): Promise<RouterEvent[]> {
  const found: RouterEvent[] = [];
  let before: string | null = null;
  for (let page = 0; page < maxPages; page++) {
    const query = new URLSearchParams({ limit: String(Math.min(pageSize, limit - found.length)) });
    if (type) query.set('type', type.join(','));
    if (call !== undefined) query.set('call', call);
    if (pod !== undefined) query.set('pod', pod);
    if (before !== null) query.set('before', before);
    const body = await searchPage(api, query);
    const newer = body.events.filter(({ id }) => isAfter(id, since));
    found.push(...newer);
    before = newer.length < body.events.length ? null : body.before;
    if (before === null || !isAfter(before, since) || found.length >= limit) break;
  }
  return found.slice(0, limit).reverse();
}

async function searchPage(api: RouterApi, query: URLSearchParams): Promise<FoundEvents> {
  return (await api.send<FoundEvents>(`/events/search?${query}`, 'events')).body;
}

/** The start of "from now on": an id, so that a connection that breaks at once loses nothing. */
export async function newestId(api: RouterApi): Promise<string> {
  return (await searchPage(api, new URLSearchParams({ limit: '1' }))).events[0]?.id ?? '0-0';
}

interface Following {
  since: string;
  signal: AbortSignal;
  onEvent(event: RouterEvent): void;
  /** Undefined after a reconnect. */
  onLost?(failure: Failure | undefined): void;
  /** Events after the last one are no longer kept; the kept ones start at this time. */
  onGap?(keptSince: string): void;
}

/** Resolves when `signal` aborts. Rejects if the first connection fails, and later only if the key is rejected. */
export async function follow(api: RouterApi, clock: Clock, following: Following): Promise<void> {
  const { signal, onEvent, onLost, onGap } = following;
  let last = following.since;
  let begun = false;
  let lost = false;
  let retryMs = minRetryMs;
  while (!signal.aborted) {
    const connection = new AbortController();
    const unlink = abortWith(connection, signal);
    try {
      const stream = await api.open(`/events?since=${last}`, connection.signal);
      if (lost) {
        onLost?.(undefined);
        const keptSince = await keptOnlySince(api, last);
        if (keptSince !== undefined) onGap?.(keptSince);
      }
      [begun, lost] = [true, false];
      await readBlocks(stream, clock, (event) => {
        retryMs = minRetryMs;
        if (!isAfter(event.id, last)) return;
        last = event.id;
        onEvent(event);
      });
      throw new Failure('unreachable', `the event stream of ${api.baseUrl} ended.`);
    } catch (error) {
      if (signal.aborted) return;
      const failure = toFailure(error);
      if (!begun || failure.code === 'failed' || isRejected(failure)) throw failure;
      if (!lost) onLost?.(failure);
      lost = true;
      await clock.sleep(retryMs, signal);
      retryMs = Math.min(maxRetryMs, retryMs * 2);
    } finally {
      unlink();
      connection.abort();
    }
  }
}

const isRejected = ({ code }: Failure) => ['unauthorized', 'forbidden', 'invalid_request'].includes(code);

async function keptOnlySince(api: RouterApi, last: string): Promise<string | undefined> {
  try {
    const keptSince = (await searchPage(api, new URLSearchParams({ limit: '1' }))).kept_since;
    if (!keptSince) return undefined;
    return Date.parse(keptSince) > Number(last.split('-')[0]) ? keptSince : undefined;
  } catch {
    // Best effort: the stream itself works.
    return undefined;
  }
}

/** Resolves when the stream ends or breaks, or after 45 s without a byte. */
async function readBlocks(
  stream: IncomingMessage,
  clock: Clock,
  onEvent: (event: RouterEvent) => void,
): Promise<void> {
  const waitForData = () => clock.after(silenceTimeoutMs, () => stream.destroy(new Error('no data')));
  let rest = '';
  let cancel = waitForData();
  try {
    for await (const text of stream.setEncoding('utf8')) {
      cancel();
      cancel = waitForData();
      const blocks = (rest + text).split('\n\n');
      rest = blocks.pop() ?? '';
      if (rest.length > maxBlockLength) throw new Failure('not_a_router', 'an event is longer than 1 MiB');
      for (const block of blocks) {
        const event = toEvent(block);
        if (event) onEvent(event);
      }
    }
  } catch (error) {
    // A broken connection is an end too; any other error is ours.
    if (!stream.errored) throw error;
  } finally {
    cancel();
  }
}

/** Undefined for comments and malformed events. */
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
