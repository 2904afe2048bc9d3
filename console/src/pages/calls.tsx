/** Live calls, calls that wait for a pod, and the timeline of any call by its id, including ended ones. */
import { useMemo } from 'preact/hooks';
import { count, waitReasons } from '../labels';
import { useLive, useTopics } from '../live/use-live';
import { addressOf, go, type Route, refine } from '../routes';
import type { Call, WaitingCall } from '../types';
import { CallPanel } from '../ui/call-panel';
import { Age, Choices, Countdown, Empty, PodLink, PoolChip, Search } from '../ui/parts';
import { type Column, Table } from '../ui/table';

export function CallsPage({ route }: { route: Route }) {
  useTopics('calls');
  const version = useLive((state) => state.fleetVersion);
  const calls = useLive((state) => state.calls);
  const isKnown = useLive((state) => state.known.has('calls'));
  const waiting = useLive((state) => state.waiting);
  const { q = '', show = '' } = Object.fromEntries(route.query);
  const isWaiting = show === 'waiting';
  const query = { q, show };
  const search = (text: string) => refine(addressOf('calls', route.item, { ...query, q: text }));
  // The map changes in place; the version shows that it changed.
  const rows = useMemo(() => {
    const words = q.trim().toLowerCase();
    return [...calls.values()].filter(({ call_sid, pod_name, merchant_id, source_pool }) =>
      [call_sid, pod_name, merchant_id, source_pool].some((text) => text.toLowerCase().includes(words)),
    );
  }, [calls, version, q]);
  const waits = useMemo(() => {
    const words = q.trim().toLowerCase();
    return [...waiting.values()].filter(({ call_sid, merchant_id }) =>
      [call_sid, merchant_id].some((text) => text.toLowerCase().includes(words)),
    );
  }, [waiting, version, q]);
  const sid = q.trim();
  const lookUp = () => {
    const [only, another] = isWaiting ? waits : rows;
    if (sid !== '') go(addressOf('calls', only && !another ? only.call_sid : sid, query));
  };

  const columns: Column<Call>[] = [
    {
      head: 'Call',
      width: 'minmax(104px, 1.6fr)',
      narrow: 'minmax(0, 1.2fr)',
      sort: (call) => call.call_sid,
      cell: (call) => (
        <a class="link mono" href={addressOf('calls', call.call_sid, query)}>
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
      width: 'minmax(78px, 0.8fr)',
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
      spare: 1,
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
          Look up, including ended calls
        </button>
        <Choices
          label="Calls"
          value={show}
          onChange={(value) => refine(addressOf('calls', route.item, { ...query, show: value }))}
          options={[
            { value: '', text: 'Live', n: rows.length },
            { value: 'waiting', text: 'Waiting', n: waits.length },
          ]}
        />
      </div>
      <div class="with-panel" data-open={route.item === undefined ? undefined : ''}>
        {isWaiting ? (
          <WaitingTable rows={waits} query={query} selected={route.item} />
        ) : (
          <Table
            label="Live calls"
            columns={columns}
            rows={rows}
            keyOf={(call) => call.call_sid}
            selected={route.item}
            sortedBy={4}
            below={(call) => (
              <>
                <PoolChip pool={call.source_pool} />
                {call.merchant_id && ` for ${call.merchant_id}`} · running for{' '}
                <Age since={call.allocated_at} />
              </>
            )}
            empty={
              !isKnown ? (
                <Empty icon="calls" title="Reading calls…" />
              ) : q !== '' ? (
                <Empty icon="search" title="No live call matches">
                  With a complete call id, press Enter to find ended calls too.
                </Empty>
              ) : (
                <Empty icon="calls" title="No live calls">
                  The next call appears here at once. Try <code>smart-router allocate CA1</code>.
                </Empty>
              )
            }
          />
        )}
        {route.item !== undefined && (
          <CallPanel sid={route.item} onClose={() => go(addressOf('calls', undefined, query))} />
        )}
      </div>
    </div>
  );
}

interface WaitingTableProps {
  rows: readonly WaitingCall[];
  query: { q: string; show: string };
  selected: string | undefined;
}

function WaitingTable({ rows, query, selected }: WaitingTableProps) {
  const isKnown = useLive((state) => state.known.has('calls'));
  const columns: Column<WaitingCall>[] = [
    {
      head: 'Call',
      width: 'minmax(104px, 1.6fr)',
      narrow: 'minmax(0, 1.2fr)',
      sort: (call) => call.call_sid,
      cell: (call) => (
        <a class="link mono" href={addressOf('calls', call.call_sid, query)}>
          {call.call_sid}
        </a>
      ),
    },
    {
      head: 'Merchant',
      width: 'minmax(66px, 0.8fr)',
      narrow: 'minmax(0, 1fr)',
      sort: (call) => call.merchant_id,
      cell: (call) => call.merchant_id || <span class="soft">–</span>,
    },
    {
      head: 'Place',
      width: '64px',
      narrow: '52px',
      numeric: true,
      sort: (call) => call.position,
      cell: (call) => count(call.position),
    },
    {
      head: 'Waiting for',
      width: '98px',
      narrow: '86px',
      sort: (call) => -Date.parse(call.waiting_since),
      cell: (call) => <Age since={call.waiting_since} />,
    },
    {
      head: 'Expires in',
      width: '98px',
      spare: 1,
      sort: (call) => call.wait_expires_at || '9',
      cell: (call) => <Countdown until={call.wait_expires_at || null} />,
    },
    {
      head: 'Reason',
      width: 'minmax(140px, 1fr)',
      sort: (call) => call.reason,
      cell: (call) => waitReasons[call.reason] ?? call.reason,
    },
  ];
  return (
    <Table
      label="Waiting calls"
      columns={columns}
      rows={rows}
      keyOf={(call) => call.call_sid}
      selected={selected}
      sortedBy={-4}
      below={(call) => waitReasons[call.reason] ?? call.reason}
      empty={
        <Empty icon="calls" title={isKnown ? 'No call waits' : 'Reading calls…'}>
          {isKnown &&
            'Where `hold` is configured, calls that find no pod wait here instead of being refused.'}
        </Empty>
      }
    />
  );
}
