/** One call beside the list, live or ended: where it is or was, and everything that happened to it. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, ask, patiently, sentenceOf } from '../api';
import { type Repeating, repeat } from '../live/repeat';
import { useAsked } from '../live/use-asked';
import { useEvents, useLive } from '../live/use-live';
import { durationText } from '../time';
import type { Call, EventPage, RouterEvent, Timeline } from '../types';
import { eventName, toneOf } from '../words';
import { byText, detailText } from './event-line';
import { Age, Chain, Chip, Countdown, Note, Panel, PodLink, PoolChip, Time } from './parts';
import { ReleaseButton } from './release';

export function CallPanel({ sid, onClose }: { sid: string; onClose: () => void }) {
  const { value, error, again } = useTimeline(sid);
  const call = useLive((state) => state.calls.get(sid));
  useEvents((events) => {
    if (events.some((event) => event.call === sid)) again();
  });
  const isUnknown = error instanceof ApiError && error.code === 'call_not_found' && !call;
  const isAbsent = error instanceof ApiError && error.isAbsent;
  const [first, last] = [value?.events[0], value?.events.at(-1)];
  const ended = value !== undefined && !value.live && !call;
  const shown = call ?? value?.live ?? undefined;
  return (
    <Panel label={`Call ${sid}`} title={<span class="mono">{sid}</span>} onClose={onClose}>
      {isUnknown && <UnknownCall />}
      {isAbsent && <Note>This router keeps no timelines; only live calls can be shown.</Note>}
      {error !== undefined && !isUnknown && !isAbsent && <Note tone="bad">{sentenceOf(error)}</Note>}
      <div class="row">
        {shown && (
          <>
            <Chip tone="good" icon="calls">
              Live
            </Chip>
            <ReleaseButton call={shown} />
          </>
        )}
        {ended &&
          (last?.type === 'no_pods' ? (
            <Chip tone="bad" icon="warning">
              Got no pod
            </Chip>
          ) : (
            <Chip>Ended</Chip>
          ))}
        {ended && first && last && last !== first && (
          <span class="soft small">
            after {durationText((Date.parse(last.at) - Date.parse(first.at)) / 1000)}
          </span>
        )}
      </div>
      {shown && <CallFacts call={shown} />}
      {ended && <PastFacts events={value.events} />}
      {value && (
        <section class="stack">
          <h3>Timeline</h3>
          {!value.is_complete && (
            <p class="soft small">Its beginning is no longer kept: this is what the router still has.</p>
          )}
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
    </Panel>
  );
}

/** Not a failure of anything: a typing error, or a call of long ago. */
function UnknownCall() {
  const since = useAsked<EventPage>('/events/search?limit=1', 0).value?.kept_since;
  return (
    <Note>
      No live call has this id, and no event of one is kept.{' '}
      {since && (
        <>
          Events are kept since <Time at={since} />.
        </>
      )}
    </Note>
  );
}

const patienceMs = 20_000;
const leastMs = 1000;
const retryMs = 3000;

/** Read once, again when asked, and while the router cannot answer. That there is none is an answer, unlike elsewhere. */
function useTimeline(sid: string) {
  const [answer, setAnswer] = useState<{ sid: string; value?: Timeline; error?: unknown }>();
  const reading = useRef<Repeating | undefined>(undefined);
  useEffect(() => {
    const over = new AbortController();
    const mine = repeat(async () => {
      try {
        const value = await ask<Timeline>(`/calls/${encodeURIComponent(sid)}/timeline`, {
          signal: patiently(patienceMs, over.signal),
        });
        if (!over.signal.aborted) setAnswer({ sid, value });
      } catch (error) {
        if (!over.signal.aborted)
          setAnswer((before) => ({ ...(before?.sid === sid ? before : {}), sid, error }));
        if (!(error instanceof ApiError) || error.isPassing) {
          const asked = error instanceof ApiError ? error.retryAfterMs : 0;
          return { leastMs: Math.max(leastMs, asked), mostMs: Math.max(retryMs, asked) };
        }
      }
      return { leastMs, mostMs: 0 };
    });
    reading.current = mine;
    return () => {
      mine.stop();
      over.abort();
    };
  }, [sid]);
  const again = useCallback(() => reading.current?.again(), []);
  return answer?.sid === sid
    ? { value: answer.value, error: answer.error, again }
    : { value: undefined, error: undefined, again };
}

function CallFacts({ call }: { call: Call }) {
  return (
    <dl class="pairs">
      <dt>Pod</dt>
      <dd>
        <PodLink name={call.pod_name} />
      </dd>
      <dt>Pool</dt>
      <dd>
        <PoolChip pool={call.source_pool} />
      </dd>
      <dt>Merchant</dt>
      <dd>{call.merchant_id || '–'}</dd>
      {call.provider && (
        <>
          <dt>Provider</dt>
          <dd>
            {call.provider}, flow {call.flow}, {call.template}
          </dd>
        </>
      )}
      <dt>Since</dt>
      <dd>
        <Time at={call.allocated_at} /> (<Age since={call.allocated_at} />)
      </dd>
      <dt>Lease</dt>
      <dd>
        <Countdown lead="ends in " until={call.lease_expires_at} />
      </dd>
      <dt>Fence</dt>
      <dd class="mono">{call.fence}</dd>
    </dl>
  );
}

/** The same of a call that has ended, as far as its events tell; the provider is not in them. */
function PastFacts({ events }: { events: readonly RouterEvent[] }) {
  const lastOf = (field: string) => events.findLast((event) => event[field])?.[field];
  const [pod, pool, merchant, fence] = ['pod', 'pool', 'merchant', 'fence'].map(lastOf);
  const [first, last] = [events[0], events.at(-1)];
  return (
    <dl class="pairs">
      {pod && (
        <>
          <dt>Pod</dt>
          <dd>
            <PodLink name={pod} />
          </dd>
        </>
      )}
      {pool && (
        <>
          <dt>Pool</dt>
          <dd>
            <PoolChip pool={pool} />
          </dd>
        </>
      )}
      <dt>Merchant</dt>
      <dd>{merchant || '–'}</dd>
      {first && last && (
        <>
          <dt>{first === last ? 'At' : 'From'}</dt>
          <dd>
            <Time at={first.at} />
            {first !== last && (
              <>
                {' '}
                to <Time at={last.at} />
              </>
            )}
          </dd>
        </>
      )}
      {fence && (
        <>
          <dt>Fence</dt>
          <dd class="mono">{fence}</dd>
        </>
      )}
    </dl>
  );
}

function TimelineStep({ event }: { event: RouterEvent }) {
  const { pod, pool, merchant, reason, chain, saw, by } = event;
  const [isOpen, setOpen] = useState(false);
  return (
    <li data-tone={toneOf(event.type)}>
      <b>{eventName(event.type)}</b>{' '}
      <span class="soft small">
        <Time at={event.at} />
      </span>
      <div class="small">
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
        {chain !== undefined && (
          <div>
            Tried <Chain chain={chain.split(' ').filter(Boolean)} />: none had a pod that was free
          </div>
        )}
        {saw && <div class="soft">{detailText('saw', saw)}</div>}
        {by && <div class="soft">{byText(by)}</div>}
        {!pod && !reason && chain === undefined && (
          <button type="button" class="link quiet" onClick={() => setOpen(!isOpen)}>
            {isOpen ? JSON.stringify(event) : 'Details'}
          </button>
        )}
      </div>
    </li>
  );
}
