/** Releases a call that has ended but that the router still holds. The dialog states that it does not hang up. */
import { useState } from 'preact/hooks';
import { ask } from '../api';
import { live } from '../live/live';
import type { Call, Released } from '../types';
import { ActionDialog } from './dialogs';
import { notify } from './messages';
import { Countdown, PodLink, Time } from './parts';

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

function ReleaseDialog({ call, onClose }: { call: Call; onClose: () => void }) {
  const { call_sid, pod_name, fence, renewed_at } = call;
  const release = async () => {
    // With the fence of the shown call: a newer call with the same id is not released.
    const body = { call_sid, ...(fence > 0 && { fence }) };
    const released = await ask<Released>('/release', { method: 'POST', body });
    notify(
      `Call ${call_sid} is released. Pod ${released.pod_name} ${
        released.released_to_pool === null ? 'takes no new calls at the moment.' : 'is available.'
      }`,
    );
    live.read();
  };
  return (
    <ActionDialog
      title={`Release ${call_sid}?`}
      verb="Release the call"
      tone="danger"
      act={release}
      onClose={onClose}
    >
      <p>
        This frees <PodLink name={pod_name} /> for the next call. <b>It does not hang up the phone:</b> if the
        call still runs, the pod may get a second one. To end a conversation, end it at the provider.
      </p>
      <p>
        {renewed_at === null ? (
          'Its lease was never renewed: '
        ) : (
          <>
            Its lease was last renewed at <Time at={renewed_at} />:{' '}
          </>
        )}
        <Countdown lead="it ends in " until={call.lease_expires_at} />. Unless it is renewed, the router then
        releases the call.
      </p>
    </ActionDialog>
  );
}
