/** Waits until a draining pod has no calls: an event wakes it, and it polls every second in case an event is missed. */
import type { Clock } from '../clock.js';
import { AppError } from '../errors.js';
import type { EventFeed } from './events.js';
import { type CallStore, podReplaced } from './store/store.js';

const pollMs = 1000;
const endings = new Set(['call_released', 'call_recovered', 'call_lost', 'pod_removed']);

/**
 * Resolves to the number of live calls: 0 when the last one has ended, more after `waitMs` or an abort. Rejects if the pod
 * of that `uid` was replaced: it does not wait for the calls of the next pod of that name.
 */
export async function untilNoCalls(
  { store, feed, clock }: { store: CallStore; feed: EventFeed; clock: Clock },
  podName: string,
  uid: string | undefined,
  waitMs: number,
  signal: AbortSignal,
): Promise<number> {
  const deadline = clock.monotonic() + waitMs;
  let wake = new AbortController();
  const unsubscribe = feed.subscribe((event) => {
    if (event.fields.pod === podName && endings.has(event.type)) wake.abort();
  });
  let live = 0;
  try {
    for (;;) {
      wake = new AbortController();
      live = await liveCalls(store, podName, uid, live);
      const leftMs = deadline - clock.monotonic();
      if (live === 0 || leftMs <= 0 || signal.aborted) return live;
      await clock.sleep(Math.min(pollMs, leftMs), AbortSignal.any([wake.signal, signal]));
    }
  } finally {
    unsubscribe();
  }
}

/** While the store is unreachable, the last number counts, and never 0. */
async function liveCalls(
  store: CallStore,
  podName: string,
  uid: string | undefined,
  lastKnown: number,
): Promise<number> {
  try {
    const pod = await store.pod(podName);
    if (uid && pod.uid !== '' && pod.uid !== uid) throw podReplaced(podName);
    return pod.calls.length;
  } catch (error) {
    if (error instanceof AppError && error.code === 'pod_not_found') return 0;
    if (error instanceof AppError && error.code === 'store_unavailable') return Math.max(1, lastKnown);
    throw error;
  }
}
