/** Drain and undrain: what will happen is said before, and how far it is afterwards. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { live } from '../live/live';
import { useAsked } from '../live/use-asked';
import { useEvents, useLive } from '../live/use-live';
import { durationText } from '../time';
import type { EventPage, Pod, RouterEvent } from '../types';
import { plural, stateOf } from '../words';
import { byText } from './event-line';
import { Countdown, Dialog, Note, PodLink } from './parts';
import { say, tell } from './telling';

export function DrainButton({ pod, small = true }: { pod: Pod; small?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  // One that terminates or is not ready cannot be brought back from here.
  const drains = pod.blocked_by === 'draining';
  if (pod.blocked_by === 'terminating') return <span class="soft small">terminating</span>;
  return (
    <>
      <button
        type="button"
        class={`btn ${small ? 'small' : ''}`}
        aria-label={`${drains ? 'Undrain' : 'Drain'} ${pod.pod_name}`}
        onClick={() => setOpen(true)}
      >
        {drains ? 'Undrain' : 'Drain'}
      </button>
      {isOpen && <DrainDialog pod={pod} drains={drains} onClose={() => setOpen(false)} />}
    </>
  );
}

/** The latest drains, newest first: who began them, and how long they last. Undefined while unknown. */
function useDrains(isWanted: boolean): readonly RouterEvent[] | undefined {
  const { value, again } = useAsked<EventPage>(
    isWanted ? '/events/search?type=pod_draining&limit=50' : undefined,
    0,
  );
  useEvents((events) => {
    if (events.some(({ type }) => type === 'pod_draining')) again();
  });
  return value?.events;
}

/**
 * How long a drain lasts here, learned from those there were: the API does not tell `DRAINING_TTL`. Somebody who waits
 * for a drain makes it longer, never shorter, so the shortest is the one to go by.
 */
function usualSeconds(drains: readonly RouterEvent[]): number | undefined {
  const lengths = drains
    .map(({ at, until }) => Math.round((Number(until) - Date.parse(at)) / 1000))
    .filter((seconds) => seconds > 0);
  return lengths.length > 0 ? Math.min(...lengths) : undefined;
}

function drainedText(pod: string, calls: number): string {
  if (calls === 0) return `Pod ${pod} is draining and has no call: it is safe to stop.`;
  const left =
    calls === 1 ? 'Its call goes on; when it has ended' : `Its ${calls} calls go on; when they have ended`;
  return `Pod ${pod} is draining: it gets no new call. ${left}, the pod is safe to stop.`;
}

function DrainDialog({ pod, drains, onClose }: { pod: Pod; drains: boolean; onClose: () => void }) {
  const [trouble, setTrouble] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const earlier = useDrains(!drains);
  const usual = usualSeconds(earlier ?? []);
  const calls = pod.leases.length;
  const act = async () => {
    setBusy(true);
    try {
      const path = drains ? '/undrain' : '/drain';
      const { message, active_calls } = await ask<{ message: string; active_calls: number }>(path, {
        method: 'POST',
        body: { pod_name: pod.pod_name },
      });
      tell(drains ? message : drainedText(pod.pod_name, active_calls));
      void live.read();
      onClose();
    } catch (error) {
      setTrouble(sentenceOf(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={drains ? `End the drain of ${pod.pod_name}?` : `Drain ${pod.pod_name}?`} onClose={onClose}>
      <div class="stack">
        {drains ? (
          <p>It takes new calls again at once.</p>
        ) : (
          <>
            <p>
              It gets no new call until the drain ends:{' '}
              {usual === undefined ? (
                <>
                  by itself after the time in <code>DRAINING_TTL</code> (6 min unless it was set)
                </>
              ) : (
                <>by itself after {durationText(usual)}</>
              )}
              , or when you undrain it.
            </p>
            <p>
              {calls === 0
                ? 'It has no call, so nobody is waited for.'
                : `Its ${calls === 1 ? 'running call goes' : `${calls} running calls go`} on until ${calls === 1 ? 'it ends' : 'they end'}.`}
            </p>
          </>
        )}
        {trouble && <Note tone="bad">{trouble}</Note>}
        <div class="row end">
          <button type="button" class="btn" onClick={onClose}>
            Cancel
          </button>
          <button type="button" class="btn primary" disabled={isBusy} onClick={act}>
            {drains ? 'Undrain' : 'Drain'}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** Every pod that drains with how many of its calls have ended: those seen since this page was opened. */
export function DrainProgress() {
  const version = useLive((state) => state.fleetVersion);
  const pods = useLive((state) => state.pods);
  const most = useRef(new Map<string, number>());
  const draining = [...pods.values()].filter((pod) => stateOf(pod) === 'draining');
  const drains = useDrains(draining.length > 0);
  // The map changes in place, the version tells.
  useEffect(() => {
    for (const pod of draining) {
      const calls = pod.leases.length;
      const before = most.current.get(pod.pod_name) ?? 0;
      if (calls > before) most.current.set(pod.pod_name, calls);
      if (calls === 0 && before > 0) {
        say(`${pod.pod_name} is drained: its last call has ended.`);
        most.current.set(pod.pod_name, 0);
      }
    }
    for (const name of most.current.keys())
      if (!draining.some((pod) => pod.pod_name === name)) most.current.delete(name);
  }, [version]);
  if (draining.length === 0) return null;
  const shown = draining.toSorted((a, b) => b.leases.length - a.leases.length).slice(0, 4);
  return (
    <section class="card" aria-labelledby="draining">
      <header>
        <h2 id="draining">{plural(draining.length, 'pod')} draining</h2>
        {draining.length > shown.length && (
          <span class="soft small">the {shown.length} with most calls are shown</span>
        )}
      </header>
      <ul class="drains">
        {shown.map((pod) => (
          <DrainLine
            key={pod.pod_name}
            pod={pod}
            began={Math.max(pod.leases.length, most.current.get(pod.pod_name) ?? 0)}
            by={drains?.find((event) => event.pod === pod.pod_name)?.by}
          />
        ))}
      </ul>
    </section>
  );
}

function DrainLine({ pod, began, by }: { pod: Pod; began: number; by: string | undefined }) {
  const calls = pod.leases.length;
  // One that terminates does not come back by itself.
  const until = pod.blocked_by === 'draining' ? pod.draining_until : null;
  return (
    <li>
      <PodLink name={pod.pod_name} />
      <div class="drain-state">
        {/* Of a single call a bar would say nothing until there is nothing left to say. */}
        {began > 1 && calls > 0 && (
          <div
            class="progress"
            role="progressbar"
            aria-label={`${pod.pod_name}: calls ended`}
            aria-valuemin={0}
            aria-valuemax={began}
            aria-valuenow={began - calls}
          >
            <div style={{ width: `${Math.round(((began - calls) / began) * 100)}%` }} />
          </div>
        )}
        <span class="small soft">
          {calls === 0 ? 'Drained, safe to stop' : `${plural(calls, 'call')} left`}
          {until !== null && (
            <>
              ; <Countdown lead="takes calls again in " until={until} />
            </>
          )}
          {by && ` · ${byText(by)}`}
        </span>
      </div>
      <DrainButton pod={pod} />
    </li>
  );
}
