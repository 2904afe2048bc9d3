/**
 * Waits until a draining pod has no calls: an event wakes it, and it polls every second in case an event is missed.
 *
 * The answer 0 lets Kubernetes end the pod, so it must be true also if the store loses its data during the wait. A pod that
 * is unknown without an event of its removal, or has lost its drain without an undrain, counts as busy until it reports, and
 * the drain is set again.
 */
import type { Clock } from '../clock.js';
import { AppError } from '../errors.js';
import type { EventFeed } from './events.js';
import type { PodInfo } from './store/replies.js';
import { type CallStore, podReplaced } from './store/store.js';

const pollMs = 1000;
const endings = new Set(['call_released', 'call_recovered', 'call_lost', 'pod_removed']);

export interface DrainWait {
  store: CallStore;
  feed: EventFeed;
  clock: Clock;
  /** Sets the drain again, for this time. */
  drain(waitMs: number): Promise<unknown>;
}

/**
 * Resolves to the number of live calls: 0 when the last one has ended, more after `waitMs` or an abort. Rejects if the pod
 * of that `uid` was replaced: it does not wait for the calls of the next pod of that name.
 */
export async function untilNoCalls(
  { store, feed, clock, drain }: DrainWait,
  podName: string,
  uid: string | undefined,
  waitMs: number,
  signal: AbortSignal,
): Promise<number> {
  const deadline = clock.monotonic() + waitMs;
  let wake = new AbortController();
  const stop = () => wake.abort();
  signal.addEventListener('abort', stop);
  const unsubscribe = feed.subscribe((event) => {
    if (event.fields.pod === podName && endings.has(event.type)) wake.abort();
  });
  let live = 1;
  let isDataLost = false;
  try {
    const since = await feed.newestRareId();
    const happened = (type: string) => feed.hasRareEvent(type, podName, since);
    for (;;) {
      wake = new AbortController();
      const pod = await readPod(store, podName, uid);
      const leftMs = deadline - clock.monotonic();
      if (pod !== 'unreachable') {
        const isDrained = pod !== 'not_found' && pod.drainingUntilMs !== undefined;
        // Calls end with the removal of their pod, also if a pod of that name is registered again.
        if (!isDrained && (await happened('pod_removed'))) return 0;
        if (!isDrained && (pod === 'not_found' || !(await happened('pod_undrained')))) {
          isDataLost = true;
          if (pod !== 'not_found' && leftMs > 0) await drain(leftMs).catch(() => undefined);
        }
        if (pod !== 'not_found' && !(isDataLost && pod.lastReportMs === undefined)) live = pod.calls.length;
      }
      if (live === 0 || leftMs <= 0 || signal.aborted) return live;
      await clock.sleep(Math.min(pollMs, leftMs), wake.signal);
    }
  } finally {
    signal.removeEventListener('abort', stop);
    unsubscribe();
  }
}

async function readPod(
  store: CallStore,
  podName: string,
  uid: string | undefined,
): Promise<PodInfo | 'not_found' | 'unreachable'> {
  try {
    const pod = await store.pod(podName);
    if (uid && pod.uid !== '' && pod.uid !== uid) throw podReplaced(podName);
    return pod;
  } catch (error) {
    if (error instanceof AppError && error.code === 'pod_not_found') return 'not_found';
    if (error instanceof AppError && error.code === 'store_unavailable') return 'unreachable';
    throw error;
  }
}
