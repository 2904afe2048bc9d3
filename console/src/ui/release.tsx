/** Releases a call that has ended but that the router still holds. The dialog states that it does not hang up. */
import { useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { live } from '../live/live';
import type { Call } from '../types';
import { notify } from './messages';
import { Countdown, Dialog, Note, PodLink, Time } from './parts';

export function ReleaseButton({ call }: { call: Call }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        class="btn small"
        aria-label={`Release ${call.call_sid}`}
        onClick={() => setOpen(true)}
      >
        Release…
      </button>
      {isOpen && <ReleaseDialog call={call} onClose={() => setOpen(false)} />}
    </>
  );
}

interface Released {
  pod_name: string;
  /** Null: the pod takes no new calls, because it is draining or not ready. */
  released_to_pool: string | null;
}

function ReleaseDialog({ call, onClose }: { call: Call; onClose: () => void }) {
  const { call_sid, pod_name, fence, renewed_at } = call;
  const [problem, setProblem] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const release = async () => {
    setBusy(true);
    try {
      // With the fence of the shown call: a newer call with the same id is not released.
      const body = { call_sid, ...(fence > 0 && { fence }) };
      const released = await ask<Released>('/release', { method: 'POST', body });
      notify(
        `Call ${call_sid} is released. ${
          released.released_to_pool === null
            ? `Pod ${released.pod_name} takes no new calls at the moment.`
            : `Pod ${released.pod_name} is available.`
        }`,
      );
      void live.read();
      onClose();
    } catch (error) {
      setProblem(sentenceOf(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Release ${call_sid}?`} onClose={onClose}>
      <div class="stack">
        <p>
          This frees <PodLink name={pod_name} /> for the next call. <b>It does not hang up the phone:</b> if
          the call still runs, the pod may get a second one. To end a conversation, end it at the provider.
        </p>
        <p>
          {renewed_at === null ? (
            'Its lease was never renewed: '
          ) : (
            <>
              Its lease was last renewed at <Time at={renewed_at} />:{' '}
            </>
          )}
          <Countdown lead="it ends in " until={call.lease_expires_at} />. Unless it is renewed, the router
          then releases the call.
        </p>
        {problem && <Note tone="bad">{problem}</Note>}
        <div class="row end">
          <button type="button" class="btn" onClick={onClose}>
            Cancel
          </button>
          <button type="button" class="btn danger" disabled={isBusy} onClick={release}>
            Release the call
          </button>
        </div>
      </div>
    </Dialog>
  );
}
