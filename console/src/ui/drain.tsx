/** Drain and undrain: what will happen is said before, and how far it is afterwards. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { live } from '../live/live';
import { useLive } from '../live/use-live';
import type { Pod } from '../shapes';
import { plural, stateOf } from '../words';
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

function DrainDialog({ pod, drains, onClose }: { pod: Pod; drains: boolean; onClose: () => void }) {
  const [trouble, setTrouble] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const calls = pod.leases.length;
  const act = async () => {
    setBusy(true);
    try {
      const path = drains ? '/undrain' : '/drain';
      const { message } = await ask<{ message: string }>(path, {
        method: 'POST',
        body: { pod_name: pod.pod_name },
      });
      tell(message);
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
          <p>
            It gets no new call until the drain ends: by itself after <code>DRAINING_TTL</code>, or when you
            undrain it.{' '}
            {calls === 0
              ? 'It has no call, so nobody is waited for.'
              : `Its ${calls === 1 ? 'running call goes' : `${calls} running calls go`} on until ${calls === 1 ? 'it ends' : 'they end'}.`}
          </p>
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
        {shown.map((pod) => {
          const calls = pod.leases.length;
          const began = Math.max(calls, most.current.get(pod.pod_name) ?? 0);
          const share = began === 0 ? 1 : (began - calls) / began;
          return (
            <li key={pod.pod_name}>
              <PodLink name={pod.pod_name} />
              <div
                class="progress"
                role="progressbar"
                aria-label={`${pod.pod_name}: calls ended`}
                aria-valuemin={0}
                aria-valuemax={Math.max(1, began)}
                aria-valuenow={began === 0 ? 1 : began - calls}
              >
                <div style={{ width: `${Math.round(share * 100)}%` }} />
              </div>
              <span class="small soft">
                {calls === 0 ? 'drained' : `${plural(calls, 'call')} left`}
                {pod.draining_until && pod.blocked_by === 'draining' && (
                  <>
                    , the drain ends in <Countdown until={pod.draining_until} />
                  </>
                )}
              </span>
              <DrainButton pod={pod} />
            </li>
          );
        })}
      </ul>
    </section>
  );
}
