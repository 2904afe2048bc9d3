/**
 * Waits until a draining pod has no calls: an event wakes it, and it polls every second in case an event is missed.
 *
 * The answer 0 lets Kubernetes end the pod, so it must be true also if the store loses its data during the wait. A pod that
 * is unknown without an event of its removal, or has lost its drain without an undrain, counts as busy until it reports, and
 * the drain is set again.
 */
import { type Clock, WakeableSleep } from '../clock.js';
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
 * of that `uid` was replaced: it does not wait for the calls of the next pod of that name. `since` is the newest rare event
 * from before the drain: removals and undrains after it count.
 */
export async function untilNoCalls(
  { store, feed, clock, drain }: DrainWait,
  {
    podName,
    uid,
    since,
    waitMs,
  }: { podName: string; uid: string | undefined; since: string; waitMs: number },
  signal: AbortSignal,
): Promise<number> {
  const deadline = clock.monotonic() + waitMs;
  const sleep = new WakeableSleep(clock);
  const unsubscribe = feed.subscribe((event) => {
    if (event.fields.pod === podName && endings.has(event.type)) sleep.wake();
  });
  const happened = (type: string) => feed.hasRareEvent(type, podName, since);
  let live = 1;
  let isDataLost = false;

  const check = async (leftMs: number): Promise<void> => {
    const pod = await readPod(store, podName, uid);
    if (pod?.drainingUntilMs === undefined) {
      // Calls end with the removal of their pod, also if a pod of that name is registered again.
      if (await happened('pod_removed')) {
        live = 0;
        return;
      }
      if (!pod || !(await happened('pod_undrained'))) {
        isDataLost = true;
        if (pod && leftMs > 0) await drain(leftMs);
      }
    }
    if (pod && !(isDataLost && pod.lastReportMs === undefined)) live = pod.calls.length;
  };

  try {
    for (;;) {
      const leftMs = deadline - clock.monotonic();
      await check(leftMs).catch((error: unknown) => {
        // While the store cannot be read, the last number counts; it is never 0.
        if (!(error instanceof AppError) || error.code === 'pod_replaced') throw error;
      });
      if (live === 0 || leftMs <= 0 || signal.aborted) return live;
      await sleep.for(Math.min(pollMs, leftMs), signal);
    }
  } finally {
    unsubscribe();
  }
}

/** Undefined if the store does not know the pod. */
async function readPod(
  store: CallStore,
  podName: string,
  uid: string | undefined,
): Promise<PodInfo | undefined> {
  try {
    const pod = await store.pod(podName);
    if (uid && pod.uid !== '' && pod.uid !== uid) throw podReplaced(podName);
    return pod;
  } catch (error) {
    if (error instanceof AppError && error.code === 'pod_not_found') return undefined;
    throw error;
  }
}
