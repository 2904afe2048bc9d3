/**
 * Judges the event stream, which every operation writes in the same step in which it changes the calls. The checker in
 * test/history judges what callers sent and received.
 */
import { Redis } from 'ioredis';
import { onTestFinished } from 'vitest';

export interface StreamEvent {
  type: string;
  call: string;
  pod: string;
  pool: string;
  fence: number;
  merchant?: string;
}

/** Reads along, because the stream keeps only the last 10,000 events. */
export function followEvents(url: string): { all(): Promise<StreamEvent[]> } {
  const key = 'voice:events';
  const client = new Redis(url);
  client.on('error', () => {});
  onTestFinished(() => client.disconnect());
  const rows: [id: string, fields: string[]][] = [];
  let stopped = false;
  const reading = (async () => {
    for (let last = '0-0', idle = false; !(stopped && idle); ) {
      const reply = (await client.xread('COUNT', 2000, 'BLOCK', 50, 'STREAMS', key, last)) as
        | [string, typeof rows][]
        | null;
      const found = reply?.[0]?.[1] ?? [];
      rows.push(...found);
      last = found.at(-1)?.[0] ?? last;
      idle = found.length === 0;
    }
  })();
  // A failed test does not read them; its connection is closed during the read.
  reading.catch(() => {});
  return {
    async all() {
      stopped = true;
      await reading;
      const info = (await client.xinfo('STREAM', key)) as (string | number)[];
      const added = info.indexOf('entries-added');
      // Redis 6 does not count them.
      if (added >= 0 && info[added + 1] !== rows.length) {
        throw new Error(`the stream had ${info[added + 1]} events, ${rows.length} were read`);
      }
      return rows.map(([, flat]) => toEvent(flat));
    },
  };
}

function toEvent(flat: string[]): StreamEvent {
  const field = (name: string) => {
    const at = flat.findIndex((item, i) => i % 2 === 0 && item === name);
    return at < 0 ? '' : (flat[at + 1] ?? '');
  };
  return {
    type: field('type'),
    call: field('call'),
    pod: field('pod'),
    pool: field('pool'),
    fence: Number(field('fence')),
    merchant: field('merchant'),
  };
}

export interface Replay {
  violations: string[];
  allocated: number;
  ended: number;
  /** Calls that still live at the end. */
  live: number;
}

/** `limits`: calls one pod of a pool may have at once. */
export function replay(events: readonly StreamEvent[], limits: Readonly<Record<string, number>>): Replay {
  const violations: string[] = [];
  const pods = new Map<string, Set<string>>();
  const podOf = new Map<string, string>();
  let [lastFence, allocated, ended] = [0, 0, 0];
  for (const { type, call, pod, pool, fence } of events) {
    if (['call_allocated', 'call_adopted', 'call_assigned'].includes(type)) {
      allocated += 1;
      const calls = pods.get(pod) ?? new Set();
      pods.set(pod, calls);
      if (fence <= lastFence) violations.push(`fence ${fence} of ${call} came after ${lastFence}`);
      lastFence = fence;
      const held = podOf.get(call);
      if (held !== undefined) violations.push(`${call} got ${pod} while it had ${held}`);
      if (calls.size >= (limits[pool] ?? 0)) {
        violations.push(`${pod} of ${pool} got ${call} while it served ${[...calls].join(', ')}`);
      }
      calls.add(call);
      podOf.set(call, pod);
    } else if (type === 'call_released' || type === 'call_recovered' || type === 'call_lost') {
      ended += 1;
      if (podOf.get(call) !== pod) violations.push(`${call} ended on ${pod}, it was on ${podOf.get(call)}`);
      pods.get(pod)?.delete(call);
      podOf.delete(call);
    }
  }
  return { violations, allocated, ended, live: podOf.size };
}

/** Promise 13: calls of a merchant that got a pod before one that had waited for longer. All have the same priority. */
export function overtakings(events: readonly StreamEvent[]): string[] {
  const found: string[] = [];
  const queues = new Map<string, string[]>();
  for (const { type, call, merchant = '' } of events) {
    const queue = queues.get(merchant) ?? [];
    queues.set(merchant, queue);
    if (type === 'call_waiting') queue.push(call);
    else if (['call_allocated', 'call_assigned'].includes(type)) {
      const [first] = queue;
      if (first !== undefined && first !== call)
        found.push(`${call} got a pod before ${first} of '${merchant}'`);
    }
    if (['call_assigned', 'wait_abandoned', 'wait_expired'].includes(type))
      queues.set(
        merchant,
        queue.filter((other) => other !== call),
      );
  }
  return found;
}

/** Numbers that a failed run names: the seed does not replay processes, but it does replay the callers. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
