/** The panel of one call, live or ended: its pod and its timeline. */
import { ApiError, ask } from '../api';
import { capital } from '../labels';
import { useLive } from '../live/use-live';
import { useRequest } from '../live/use-request';
import { durationText } from '../time';
import type { Call, EventPage, Released, RouterEvent, Timeline } from '../types';
import { ActionDialog, DialogButton } from './dialogs';
import { detailsOf, EventItem } from './event-line';
import { Explanation } from './explanation';
import { notify } from './messages';
import { Age, Chip, Countdown, Note, Pairs, Panel, PodLink, PoolChip, Time } from './parts';

export function CallPanel({ sid }: { sid: string }) {
  const { value, problem, error } = useRequest<Timeline>(`/calls/${encodeURIComponent(sid)}/timeline`, {
    intervalMs: 0,
    when: (event) => event.call === sid,
  });
  const call = useLive((state) => state.calls.get(sid));
  const isUnknown = error instanceof ApiError && error.code === 'call_not_found' && !call;
  const [first, last] = [value?.events[0], value?.events.at(-1)];
  const shown = call ?? value?.live ?? undefined;
  const waits = value !== undefined && !shown && last?.type === 'call_waiting';
  const ended = value !== undefined && !shown && !waits;
  const hadNoPod = ended && last !== undefined && unserved.has(last.type);
  return (
    <Panel kind="Call" id={sid}>
      {isUnknown && <UnknownCall />}
      {problem && !isUnknown && <Note tone="bad">{problem}</Note>}
      <div class="row">
        {shown && (
          <>
            <Chip tone="good" icon="calls">
              Live
            </Chip>
            <DialogButton
              label={`Release ${sid}`}
              dialog={(onClose) => <ReleaseDialog call={shown} onClose={onClose} />}
            >
              Release…
            </DialogButton>
          </>
        )}
        {waits && last && (
          <>
            <Chip tone="warn" icon="calls">
              Waiting
            </Chip>
            <span class="soft small">
              for <Age since={last.at} />
            </span>
          </>
        )}
        {hadNoPod && (
          <Chip tone="bad" icon="warning">
            No pod
          </Chip>
        )}
        {ended && !hadNoPod && <Chip>Ended</Chip>}
        {ended && first && last && last !== first && (
          <span class="soft small">
            after {durationText((Date.parse(last.at) - Date.parse(first.at)) / 1000)}
          </span>
        )}
      </div>
      {(shown || value) && <Facts call={shown} events={value?.events ?? []} />}
      {value && (
        <section class="stack">
          <h3>Timeline</h3>
          {!value.is_complete && <p class="soft small">The beginning of the timeline is no longer stored.</p>}
          <ol class="line">
            {value.events.map((event) => (
              <TimelineStep key={event.id} event={event} />
            ))}
            {shown?.renewed_at && (
              <li>
                <b>Renewed</b>{' '}
                <span class="soft small">
                  last at <Time at={shown.renewed_at} />
                </span>
              </li>
            )}
          </ol>
        </section>
      )}
      {hadNoPod && <Explanation merchant={value.events.find((event) => event.merchant)?.merchant} />}
    </Panel>
  );
}

/** A call whose last event is one of these never got a pod. */
const unserved = new Set(['no_pods', 'wait_abandoned', 'wait_expired']);

/** A typing error, or a call of long ago. */
function UnknownCall() {
  const since = useRequest<EventPage>('/events/search?limit=1', { intervalMs: 0 }).value?.kept_since;
  return (
    <Note>
      No live call has this id, and no events of it are stored.{' '}
      {since && (
        <>
          Events are stored since <Time at={since} />.
        </>
      )}
    </Note>
  );
}

/** Of a live call from the call, of an ended one from its events, which do not contain the provider. */
function Facts({ call, events }: { call: Call | undefined; events: readonly RouterEvent[] }) {
  const lastOf = (field: string) => events.findLast((event) => event[field])?.[field];
  const pod = call?.pod_name ?? lastOf('pod');
  const pool = call?.source_pool ?? lastOf('pool');
  const fence = call?.fence ?? lastOf('fence');
  const [first, last] = [events[0], events.at(-1)];
  return (
    <Pairs
      of={[
        ['Pod', pod && <PodLink name={pod} />],
        ['Pool', pool && <PoolChip pool={pool} />],
        ['Merchant', (call?.merchant_id ?? lastOf('merchant')) || '–'],
        ['Provider', call?.provider && `${call.provider}, flow ${call.flow}, ${call.template}`],
        [
          'Since',
          call && (
            <>
              <Time at={call.allocated_at} /> (<Age since={call.allocated_at} />)
            </>
          ),
        ],
        ['Lease', call && <Countdown lead="ends in " until={call.lease_expires_at} />],
        ['At', !call && first && first === last && <Time at={first.at} />],
        [
          'From',
          !call && first && last && first !== last && (
            <>
              <Time at={first.at} /> to <Time at={last.at} />
            </>
          ),
        ],
        ['Fence', fence && <span class="mono">{fence}</span>],
      ]}
    />
  );
}

function TimelineStep({ event }: { event: RouterEvent }) {
  const { pod, pool, merchant } = event;
  return (
    <EventItem event={event}>
      {pod && <PodLink name={pod} />} {pool && <PoolChip pool={pool} />}
      {merchant && <span class="soft"> for {merchant}</span>}
      {detailsOf(event).map((detail) => (
        <div key={detail}>{capital(detail)}</div>
      ))}
    </EventItem>
  );
}

/** Releases a call that has ended but that the router still holds. The dialog states that it does not hang up. */
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
