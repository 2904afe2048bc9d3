/** Releasing a call by hand: for one that has ended for everybody but the router. What it does not do is said before. */
import { useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { live } from '../live/live';
import type { Call } from '../types';
import { Countdown, Dialog, Note, PodLink, Time } from './parts';
import { tell } from './telling';

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
  /** Null: the pod takes no new call, because it drains or is not ready. */
  released_to_pool: string | null;
}

function ReleaseDialog({ call, onClose }: { call: Call; onClose: () => void }) {
  const { call_sid, pod_name, fence, renewed_at } = call;
  const [trouble, setTrouble] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const release = async () => {
    setBusy(true);
    try {
      // With the fence of the call that is on the screen: should its id have been given a pod anew, that one stays.
      const body = { call_sid, ...(fence > 0 && { fence }) };
      const released = await ask<Released>('/release', { method: 'POST', body });
      tell(
        `Call ${call_sid} is released. ${
          released.released_to_pool === null
            ? `Pod ${released.pod_name} is rid of it, and takes no new call now.`
            : `Pod ${released.pod_name} takes the next call.`
        }`,
      );
      void live.read();
      onClose();
    } catch (error) {
      setTrouble(sentenceOf(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Release ${call_sid}?`} onClose={onClose}>
      <div class="stack">
        <p>
          It frees <PodLink name={pod_name} /> for the next call. <b>It does not hang up the phone:</b> if
          somebody still talks there, the pod may get a second call beside theirs. To end a conversation, end
          it at the provider.
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
          then frees the pod by itself.
        </p>
        {trouble && <Note tone="bad">{trouble}</Note>}
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
