/** Waiting for a draining pod's last call: told by the event feed, and looking every second in case it is not. */
import type { Clock } from '../clock.js';
import { AppError } from '../errors.js';
import type { EventFeed } from './events.js';
import { type CallStore, podReplaced } from './store/store.js';

const lookEveryMs = 1000;
const endings = new Set(['call_released', 'call_recovered', 'call_lost', 'pod_removed']);

/**
 * Resolves to the calls that are still live: 0 when the last has ended, more when time or patience is up. Rejects when the
 * pod of that `uid` has been replaced: its successor's calls are not waited for.
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
      await clock.sleep(Math.min(lookEveryMs, leftMs), AbortSignal.any([wake.signal, signal]));
    }
  } finally {
    unsubscribe();
  }
}

/** While the store does not answer, the last known number stands: it is never taken for "no calls". */
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
