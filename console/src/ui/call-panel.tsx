/** The panel of one call, live or ended: its pod and its timeline. */
import { useState } from 'preact/hooks';
import { ApiError, ask } from '../api';
import { capital, isLimit } from '../labels';
import { live } from '../live/live';
import { useEvents, useLive } from '../live/use-live';
import { useRequest } from '../live/use-request';
import { durationText } from '../time';
import type { Call, EventPage, Released, RouterEvent, Timeline } from '../types';
import { ActionDialog } from './dialogs';
import { byText, detailText, EventItem } from './event-line';
import { Explanation } from './explanation';
import { notify } from './messages';
import { Age, Chain, Chip, Countdown, Note, Pairs, Panel, PodLink, PoolChip, Time } from './parts';

export function CallPanel({ sid, onClose }: { sid: string; onClose: () => void }) {
  const { value, problem, error, again } = useRequest<Timeline>(
    `/calls/${encodeURIComponent(sid)}/timeline`,
    0,
  );
  const call = useLive((state) => state.calls.get(sid));
  useEvents((events) => {
    if (events.some((event) => event.call === sid)) again();
  });
  const isUnknown = error instanceof ApiError && error.code === 'call_not_found' && !call;
  const [first, last] = [value?.events[0], value?.events.at(-1)];
  const shown = call ?? value?.live ?? undefined;
  const waits = value !== undefined && !shown && last?.type === 'call_waiting';
  const ended = value !== undefined && !shown && !waits;
  const hadNoPod = ended && last !== undefined && unserved.has(last.type);
  return (
    <Panel label={`Call ${sid}`} title={<span class="mono">{sid}</span>} onClose={onClose}>
      {isUnknown && <UnknownCall />}
      {problem && !isUnknown && <Note tone="bad">{problem}</Note>}
      <div class="row">
        {shown && (
          <>
            <Chip tone="good" icon="calls">
              Live
            </Chip>
            <ReleaseButton call={shown} />
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
      {shown && <CallFacts call={shown} />}
      {(ended || waits) && <PastFacts events={value.events} />}
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
  const since = useRequest<EventPage>('/events/search?limit=1', 0).value?.kept_since;
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

function CallFacts({ call }: { call: Call }) {
  const { provider, flow, template } = call;
  return (
    <Pairs
      of={[
        ['Pod', <PodLink name={call.pod_name} />],
        ['Pool', <PoolChip pool={call.source_pool} />],
        ['Merchant', call.merchant_id || '–'],
        ['Provider', provider && `${provider}, flow ${flow}, ${template}`],
        [
          'Since',
          <>
            <Time at={call.allocated_at} /> (<Age since={call.allocated_at} />)
          </>,
        ],
        ['Lease', <Countdown lead="ends in " until={call.lease_expires_at} />],
        ['Fence', <span class="mono">{call.fence}</span>],
      ]}
    />
  );
}

/** The same for an ended call, from its events; they do not contain the provider. */
function PastFacts({ events }: { events: readonly RouterEvent[] }) {
  const lastOf = (field: string) => events.findLast((event) => event[field])?.[field];
  const [pod, pool, merchant, fence] = ['pod', 'pool', 'merchant', 'fence'].map(lastOf);
  const [first, last] = [events[0], events.at(-1)];
  return (
    <Pairs
      of={[
        ['Pod', pod && <PodLink name={pod} />],
        ['Pool', pool && <PoolChip pool={pool} />],
        ['Merchant', merchant || '–'],
        ['At', first && first === last && <Time at={first.at} />],
        [
          'From',
          first && last && first !== last && (
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
  const { pod, pool, merchant, reason, chain, saw, by, position, waited_ms } = event;
  const [isOpen, setOpen] = useState(false);
  return (
    <EventItem event={event}>
      {pod && (
        <>
          <PodLink name={pod} /> {pool && <PoolChip pool={pool} />}
        </>
      )}
      {merchant && <span class="soft"> for {merchant}</span>}
      {reason && (
        <div>
          {reason}
          {event.age_seconds && `, after ${durationText(Number(event.age_seconds))}`}
        </div>
      )}
      {position && <div>{capital(detailText('position', position))}</div>}
      {waited_ms && <div>{capital(detailText('waited_ms', waited_ms))}</div>}
      {chain !== undefined && !isLimit(saw) && (
        <div>
          Tried <Chain chain={chain.split(' ').filter(Boolean)} />: no free pod
        </div>
      )}
      {saw && <div class="soft">{detailText('saw', saw)}</div>}
      {by && <div class="soft">{byText(by)}</div>}
      {!pod && !reason && chain === undefined && (
        <button type="button" class="link quiet" onClick={() => setOpen(!isOpen)}>
          {isOpen ? JSON.stringify(event) : 'Details'}
        </button>
      )}
    </EventItem>
  );
}

/** Releases a call that has ended but that the router still holds. The dialog states that it does not hang up. */
function ReleaseButton({ call }: { call: Call }) {
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
