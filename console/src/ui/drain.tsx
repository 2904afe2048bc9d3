/** Drain and undrain: a dialog with the consequences, and the progress of running drains. */
import { useEffect, useRef } from 'preact/hooks';
import { ask } from '../api';
import { plural, stateOf } from '../labels';
import { useFleet } from '../live/use-live';
import { useRequest } from '../live/use-request';
import { durationText } from '../time';
import type { EventPage, Pod, RouterEvent } from '../types';
import { ActionDialog, DialogButton } from './dialogs';
import { byText } from './event-line';
import { announce, notify } from './messages';
import { Countdown, PodLink } from './parts';

export function DrainButton({ pod }: { pod: Pod }) {
  // A pod that is terminating or not ready cannot be undrained.
  const drains = pod.blocked_by === 'draining';
  const verb = drains ? 'Undrain' : 'Drain';
  if (pod.blocked_by === 'terminating') return <span class="soft small">terminating</span>;
  return (
    <DialogButton
      label={`${verb} ${pod.pod_name}`}
      dialog={(onClose) => <DrainDialog pod={pod} drains={drains} onClose={onClose} />}
    >
      {verb}
    </DialogButton>
  );
}

/** The latest drains, newest first. Undefined until they are read. */
function useDrains(isWanted: boolean): readonly RouterEvent[] | undefined {
  return useRequest<EventPage>(isWanted ? '/events/search?type=pod_draining&limit=50' : undefined, {
    intervalMs: 0,
    when: ({ type }) => type === 'pod_draining',
  }).value?.events;
}

/**
 * The duration of a drain, from the latest ones: the API does not return `DRAINING_TTL`. A drain with `wait` is longer,
 * never shorter, so the minimum is used.
 */
function usualSeconds(drains: readonly RouterEvent[]): number | undefined {
  const lengths = drains
    .map(({ at, until }) => Math.round((Number(until) - Date.parse(at)) / 1000))
    .filter((seconds) => seconds > 0);
  return lengths.length > 0 ? Math.min(...lengths) : undefined;
}

function drainedText(pod: string, calls: number): string {
  if (calls === 0) return `Pod ${pod} is draining and has no calls: it is safe to stop.`;
  const left = calls === 1 ? 'its call has ended' : `its ${calls} calls have ended`;
  return `Pod ${pod} is draining: it gets no new calls. It is safe to stop when ${left}.`;
}

function DrainDialog({ pod, drains, onClose }: { pod: Pod; drains: boolean; onClose: () => void }) {
  const { pod_name, leases } = pod;
  const usual = usualSeconds(useDrains(!drains) ?? []);
  const act = async () => {
    const path = drains ? '/undrain' : '/drain';
    const body = { pod_name };
    const answer = await ask<{ message: string; active_calls: number }>(path, { method: 'POST', body });
    notify(drains ? answer.message : drainedText(pod_name, answer.active_calls));
  };
  return (
    <ActionDialog
      title={drains ? `End the drain of ${pod_name}?` : `Drain ${pod_name}?`}
      verb={drains ? 'Undrain' : 'Drain'}
      act={act}
      onClose={onClose}
    >
      {drains ? (
        <p>The pod accepts new calls again at once.</p>
      ) : (
        <>
          <p>
            The pod gets no new calls until the drain ends: after{' '}
            {usual === undefined ? (
              <>
                <code>DRAINING_TTL</code> (default: 6 min)
              </>
            ) : (
              durationText(usual)
            )}
            , or when you undrain it.
          </p>
          <p>
            {leases.length === 0
              ? 'It has no calls.'
              : `Its ${leases.length === 1 ? 'live call continues' : `${leases.length} live calls continue`}.`}
          </p>
        </>
      )}
    </ActionDialog>
  );
}

/** The draining pods and how many of their calls have ended since this page was opened. */
export function DrainProgress() {
  const pods = useFleet('pods');
  const maxCalls = useRef(new Map<string, number>());
  const draining = pods.filter((pod) => stateOf(pod) === 'draining');
  const drains = useDrains(draining.length > 0);
  useEffect(() => {
    for (const pod of draining) {
      const calls = pod.leases.length;
      const before = maxCalls.current.get(pod.pod_name) ?? 0;
      if (calls > before) maxCalls.current.set(pod.pod_name, calls);
      if (calls === 0 && before > 0) {
        announce(`${pod.pod_name} is drained: its last call has ended.`);
        maxCalls.current.set(pod.pod_name, 0);
      }
    }
    for (const name of maxCalls.current.keys())
      if (!draining.some((pod) => pod.pod_name === name)) maxCalls.current.delete(name);
  }, [pods]);
  if (draining.length === 0) return null;
  const shown = draining.toSorted((a, b) => b.leases.length - a.leases.length).slice(0, 4);
  return (
    <section class="card" aria-labelledby="draining">
      <header>
        <h2 id="draining">{plural(draining.length, 'pod')} draining</h2>
        {draining.length > shown.length && (
          <span class="soft small">showing the {shown.length} with most calls</span>
        )}
      </header>
      <ul class="stack">
        {shown.map((pod) => (
          <DrainLine
            key={pod.pod_name}
            pod={pod}
            callsAtStart={Math.max(pod.leases.length, maxCalls.current.get(pod.pod_name) ?? 0)}
            by={drains?.find((event) => event.pod === pod.pod_name)?.by}
          />
        ))}
      </ul>
    </section>
  );
}

function DrainLine({ pod, callsAtStart, by }: { pod: Pod; callsAtStart: number; by: string | undefined }) {
  const calls = pod.leases.length;
  // A terminating pod never accepts calls again.
  const until = pod.blocked_by === 'draining' ? pod.draining_until : null;
  return (
    <li class="row">
      <PodLink name={pod.pod_name} />
      <div class="row drain-state">
        {/* A bar for a single call would jump from empty to full. */}
        {callsAtStart > 1 && calls > 0 && (
          <progress
            aria-label={`${pod.pod_name}: calls ended`}
            max={callsAtStart}
            value={callsAtStart - calls}
          />
        )}
        <span class="small soft">
          {calls === 0 ? 'Drained, safe to stop' : `${plural(calls, 'call')} left`}
          {until !== null && (
            <>
              ; <Countdown lead="accepts calls again in " until={until} />
            </>
          )}
          {by && ` · ${byText(by)}`}
        </span>
      </div>
      <DrainButton pod={pod} />
    </li>
  );
}
