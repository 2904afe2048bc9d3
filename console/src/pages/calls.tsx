/** Live calls; and any call, also one that has ended, by its id: what happened to it from the first to the last moment. */
import { useMemo, useState } from 'preact/hooks';
import { useAsked } from '../live/use-asked';
import { useEvents, useLive, useTopics } from '../live/use-live';
import { addressOf, go, type Route, refine } from '../routes';
import type { Call, RouterEvent, Timeline } from '../shapes';
import { durationText } from '../time';
import {
  Age,
  Chain,
  Chip,
  Countdown,
  Empty,
  Note,
  Panel,
  PodLink,
  PoolChip,
  Search,
  Time,
} from '../ui/parts';
import { type Column, Table } from '../ui/table';
import { count, eventName, toneOf } from '../words';

export function CallsPage({ route }: { route: Route }) {
  useTopics('calls');
  const version = useLive((state) => state.fleetVersion);
  const calls = useLive((state) => state.calls);
  const isKnown = useLive((state) => state.known.has('calls'));
  const { q = '' } = Object.fromEntries(route.query);
  const search = (text: string) => refine(addressOf('calls', route.item, { q: text }));
  // The map changes in place, the version tells.
  const rows = useMemo(() => {
    const words = q.trim().toLowerCase();
    const all = [...calls.values()];
    if (words === '') return all;
    return all.filter(({ call_sid, pod_name, merchant_id, source_pool }) =>
      [call_sid, pod_name, merchant_id, source_pool].some((text) => text.toLowerCase().includes(words)),
    );
  }, [calls, version, q]);
  const sid = q.trim();
  const lookUp = () => {
    if (sid !== '') go(addressOf('calls', rows.length === 1 && rows[0] ? rows[0].call_sid : sid, { q }));
  };

  const columns: Column<Call>[] = [
    {
      head: 'Call',
      width: 'minmax(104px, 1.6fr)',
      narrow: 'minmax(0, 1.2fr)',
      sort: (call) => call.call_sid,
      cell: (call) => (
        <a class="link mono" href={addressOf('calls', call.call_sid, { q })}>
          {call.call_sid}
        </a>
      ),
    },
    {
      head: 'Pod',
      width: 'minmax(96px, 1.1fr)',
      narrow: 'minmax(0, 1fr)',
      sort: (call) => call.pod_name,
      cell: (call) => <PodLink name={call.pod_name} />,
    },
    {
      head: 'Pool',
      width: 'minmax(84px, 0.8fr)',
      sort: (call) => call.source_pool,
      cell: (call) => <PoolChip pool={call.source_pool} />,
    },
    {
      head: 'Merchant',
      width: 'minmax(66px, 0.8fr)',
      sort: (call) => call.merchant_id,
      cell: (call) => call.merchant_id || <span class="soft">–</span>,
    },
    {
      head: 'Running for',
      width: '88px',
      sort: (call) => -Date.parse(call.allocated_at),
      cell: (call) => <Age since={call.allocated_at} />,
    },
    {
      head: 'Lease ends in',
      width: '98px',
      narrow: '86px',
      sort: (call) => call.lease_expires_at ?? '9',
      cell: (call) => <Countdown until={call.lease_expires_at} />,
    },
  ];

  return (
    <div class="page full">
      <div class="row">
        <Search
          label="Search calls"
          placeholder="Call id, pod, merchant"
          value={q}
          onInput={search}
          onEnter={lookUp}
        />
        <button type="button" class="btn" disabled={sid === ''} onClick={lookUp}>
          Look up, also ended calls
        </button>
        <span class="soft small">
          {q === '' ? `${count(calls.size)} live` : `${count(rows.length)} of ${count(calls.size)} live`}
        </span>
      </div>
      <div class="with-panel" data-open={route.item === undefined ? undefined : ''}>
        <Table
          label="Live calls"
          columns={columns}
          rows={rows}
          keyOf={(call) => call.call_sid}
          selected={route.item}
          sortedBy={4}
          empty={
            !isKnown ? (
              <Empty icon="calls" title="Reading calls…" />
            ) : q !== '' ? (
              <Empty icon="search" title="No live call matches">
                If you have its whole id, press Enter: calls that have ended are found too.
              </Empty>
            ) : (
              <Empty icon="calls" title="Nobody is calling">
                The next call appears here at once. Try <code>smart-router allocate CA1</code>.
              </Empty>
            )
          }
        />
        {route.item !== undefined && (
          <CallPanel sid={route.item} onClose={() => go(addressOf('calls', undefined, { q }))} />
        )}
      </div>
    </div>
  );
}

function CallPanel({ sid, onClose }: { sid: string; onClose: () => void }) {
  const asked = useAsked<Timeline>(`/calls/${encodeURIComponent(sid)}/timeline`, 0);
  const call = useLive((state) => state.calls.get(sid));
  const { value, again } = asked;
  useEvents((events) => {
    if (events.some((event) => event.call === sid)) again();
  });
  const [first, last] = [value?.events[0], value?.events.at(-1)];
  const ended = value !== undefined && !value.live && !call;
  const shown = call ?? value?.live ?? undefined;
  return (
    <Panel label={`Call ${sid}`} title={<span class="mono">{sid}</span>} onClose={onClose}>
      {asked.trouble && <Note tone="bad">{asked.trouble}</Note>}
      {asked.isAbsent && <Note>This router keeps no timelines; only live calls can be shown.</Note>}
      <div class="row">
        {shown && (
          <Chip tone="good" icon="calls">
            Live
          </Chip>
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
        ends in <Countdown until={call.lease_expires_at} />
      </dd>
      <dt>Fence</dt>
      <dd class="mono">{call.fence}</dd>
    </dl>
  );
}

function TimelineStep({ event }: { event: RouterEvent }) {
  const { pod, pool, merchant, reason, chain } = event;
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
        {!pod && !reason && chain === undefined && (
          <button type="button" class="link quiet" onClick={() => setOpen(!isOpen)}>
            {isOpen ? JSON.stringify(event) : 'Details'}
          </button>
        )}
      </div>
    </li>
  );
}
