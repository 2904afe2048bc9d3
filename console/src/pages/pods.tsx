/** All pods, filtered by name, state or tier, with drain and undrain. */
import { useMemo } from 'preact/hooks';
import {
  collator,
  contains,
  count,
  isMerchantPool,
  podStates,
  poolName,
  stateLabels,
  stateOf,
  stateText,
} from '../labels';
import { useFleet, useLive, useTopics } from '../live/use-live';
import { useRequest } from '../live/use-request';
import { type Route, refine } from '../routes';
import type { EventPage, Pod } from '../types';
import { DrainButton, DrainProgress } from '../ui/drain';
import { PastEvents } from '../ui/event-line';
import {
  Age,
  CallLink,
  Choices,
  Countdown,
  Empty,
  Note,
  Pairs,
  Panel,
  PodLink,
  PodMark,
  PoolChip,
  Search,
  Select,
  Time,
} from '../ui/parts';
import { tally } from '../ui/pool-picture';
import { type Column, Table } from '../ui/table';

const nextLease = (pod: Pod) =>
  pod.leases.reduce<string | null>(
    (first, { lease_expires_at: at }) => (at !== null && (first === null || at < first) ? at : first),
    null,
  );

export function PodsPage({ route }: { route: Route }) {
  useTopics('pods');
  const pods = useFleet('pods');
  const isKnown = useLive((state) => state.known.has('pods'));
  const { q = '', state = '', tier = '' } = route.query;
  const found = useMemo(
    () =>
      pods.filter((pod) => {
        const calls = pod.leases.map(({ call_sid }) => call_sid);
        return (tier === '' || pod.tier === tier) && contains(q, pod.pod_name, stateText(pod), ...calls);
      }),
    [pods, q, tier],
  );
  const counts = tally(found);
  const rows = useMemo(
    () => (state === '' ? found : found.filter((pod) => stateOf(pod) === state)),
    [found, state],
  );
  const tiers = useMemo(() => [...new Set(pods.map((pod) => pod.tier))].sort(collator.compare), [pods]);

  const columns: Column<Pod>[] = [
    {
      head: 'Pod',
      width: 'minmax(92px, 1.6fr)',
      narrow: 'minmax(0, 1.3fr)',
      sort: (pod) => pod.pod_name,
      cell: (pod) => <PodLink name={pod.pod_name} query={route.query} />,
    },
    {
      head: 'Pool',
      width: 'minmax(78px, 1fr)',
      sort: (pod) => pod.tier,
      cell: (pod) => <PoolChip pool={pod.tier} />,
    },
    {
      head: 'State',
      width: 'minmax(108px, 1fr)',
      narrow: 'minmax(0, 1fr)',
      sort: (pod) => podStates.indexOf(stateOf(pod)),
      cell: (pod) => <PodMark pod={pod} />,
    },
    {
      head: 'Calls',
      width: '50px',
      narrow: '38px',
      numeric: true,
      sort: (pod) => pod.leases.length,
      cell: (pod) => (pod.leases.length === 0 ? <span class="soft">0</span> : pod.leases.length),
    },
    {
      head: 'Lease ends in',
      width: 'minmax(94px, 0.8fr)',
      spare: 2,
      sort: (pod) => nextLease(pod) ?? '9',
      cell: (pod) =>
        pod.leases.length === 0 ? <span class="soft">–</span> : <Countdown until={nextLease(pod)} />,
    },
    {
      head: 'Age',
      width: 'minmax(82px, 0.6fr)',
      spare: 1,
      sort: (pod) => pod.started_at ?? '9',
      cell: (pod) => (pod.started_at === null ? <span class="soft">–</span> : <Age since={pod.started_at} />),
    },
    { head: 'Action', width: '92px', narrow: '92px', cell: (pod) => <DrainButton pod={pod} /> },
  ];

  return (
    <div class="page full">
      <div class="row">
        <Search
          label="Search pods"
          placeholder="Pod name or call id"
          value={q}
          onInput={(text) => refine({ q: text })}
        />
        <Choices
          label="State"
          value={state}
          onChange={(value) => refine({ state: value })}
          options={[
            { value: '', text: 'All', n: found.length },
            ...podStates.map((one) => ({ value: one as string, text: stateLabels[one], n: counts[one] })),
          ]}
        />
        <Select
          label="Pool"
          value={tier}
          options={[
            ['', 'All pools'],
            ...tiers.map(
              (name) => [name, isMerchantPool(name) ? `${poolName(name)} (merchant)` : name] as const,
            ),
          ]}
          onChange={(value) => refine({ tier: value })}
        />
      </div>
      <DrainProgress />
      <div class="with-panel" data-open={route.item === undefined ? undefined : ''}>
        <Table
          label="Pods"
          columns={columns}
          rows={rows}
          keyOf={(pod) => pod.pod_name}
          selected={route.item}
          sortedBy={0}
          below={(pod) => (
            <>
              <PoolChip pool={pod.tier} />
              {pod.leases.length > 0 && (
                <>
                  {' '}
                  · lease <Countdown lead="ends in " until={nextLease(pod)} />
                </>
              )}
              {pod.started_at !== null && (
                <>
                  {' '}
                  · up for <Age since={pod.started_at} />
                </>
              )}
            </>
          )}
          empty={
            !isKnown ? (
              <Empty icon="pods" title="Reading pods…" />
            ) : pods.length === 0 ? (
              <Empty icon="pods" title="No pods">
                The leader registers the pods of the source. See <code>POD_SOURCE</code> and{' '}
                <code>smart-router doctor</code>.
              </Empty>
            ) : (
              <Empty icon="search" title="No pod matches">
                None of {count(pods.length)} pods matches the search and the filters.
              </Empty>
            )
          }
        />
        {route.item !== undefined && <PodPanel name={route.item} />}
      </div>
    </div>
  );
}

function PodPanel({ name }: { name: string }) {
  const pod = useLive((state) => state.pods.get(name));
  const isKnown = useLive((state) => state.known.has('pods'));
  const past = useRequest<EventPage>(`/events/search?pod=${encodeURIComponent(name)}&limit=50`, {
    when: (event) => event.pod === name,
  });
  return (
    <Panel kind="Pod" id={name}>
      {pod ? (
        <>
          <div class="row">
            <PodMark pod={pod} />
            <PoolChip pool={pod.tier} />
            <DrainButton pod={pod} />
          </div>
          {pod.blocked_by === 'unreadable' && (
            <Note tone="warn">
              A key of this pod in the store has a wrong type, so the pod gets no calls. The log of the leader
              names the key; see docs/operations.md.
            </Note>
          )}
          <Pairs
            of={[
              ['Drains until', pod.draining_until && <Time at={pod.draining_until} />],
              ['Last report', pod.last_report_at && <Time at={pod.last_report_at} />],
              ['UID', <span class="mono">{pod.uid || '–'}</span>],
            ]}
          />
          <section class="stack">
            <h3>{pod.leases.length === 0 ? 'No calls' : 'Calls'}</h3>
            {pod.leases.map((lease) => (
              <div class="row" key={lease.call_sid}>
                <CallLink sid={lease.call_sid} />
                <span class="soft small">
                  lease <Countdown lead="ends in " until={lease.lease_expires_at} />
                </span>
              </div>
            ))}
          </section>
        </>
      ) : (
        isKnown && <Note>No pod has this name at the moment. Its stored events are below.</Note>
      )}
      <section class="stack">
        <h3>Events</h3>
        <PastEvents past={past} none="No stored events." without="pod" />
      </section>
    </Panel>
  );
}
