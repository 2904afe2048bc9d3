/** Live calls, calls that wait for a pod, and the timeline of any call by its id, including ended ones. */
import { useMemo } from 'preact/hooks';
import { contains, count, waitReasons } from '../labels';
import { useFleet, useLive, useTopics } from '../live/use-live';
import { addressOf, go, type Route, refine } from '../routes';
import type { Call, WaitingCall } from '../types';
import { CallPanel } from '../ui/call-panel';
import { Age, CallLink, Choices, Countdown, Empty, PodLink, PoolChip, Search } from '../ui/parts';
import { type Column, Table } from '../ui/table';

const merchantColumn: Column<{ merchant_id: string }> = {
  head: 'Merchant',
  width: 'minmax(66px, 0.8fr)',
  sort: (call) => call.merchant_id,
  cell: (call) => call.merchant_id || <span class="soft">–</span>,
};

const liveColumns: readonly Column<Call>[] = [
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
  merchantColumn,
  {
    head: 'Running for',
    width: '104px',
    spare: 1,
    sort: (call) => -Date.parse(call.allocated_at),
    cell: (call) => <Age since={call.allocated_at} />,
  },
  {
    head: 'Lease ends in',
    width: '114px',
    narrow: '86px',
    sort: (call) => call.lease_expires_at ?? '9',
    cell: (call) => <Countdown until={call.lease_expires_at} />,
  },
];

const reasonOf = ({ reason }: WaitingCall) => waitReasons[reason] ?? reason;

const waitingColumns: readonly Column<WaitingCall>[] = [
  { ...merchantColumn, narrow: 'minmax(0, 1fr)' },
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
  { head: 'Reason', width: 'minmax(140px, 1fr)', sort: (call) => call.reason, cell: reasonOf },
];

export function CallsPage({ route }: { route: Route }) {
  useTopics('calls');
  const calls = useFleet('calls');
  const waiting = useFleet('waiting');
  const isKnown = useLive((state) => state.known.has('calls'));
  const { q = '', show = '' } = route.query;
  const isWaiting = show === 'waiting';
  const rows = useMemo(
    () =>
      calls.filter((call) => contains(q, call.call_sid, call.pod_name, call.merchant_id, call.source_pool)),
    [calls, q],
  );
  const waits = useMemo(
    () => waiting.filter(({ call_sid, merchant_id }) => contains(q, call_sid, merchant_id)),
    [waiting, q],
  );
  const sid = q.trim();
  const lookUp = () => {
    const [only, another] = isWaiting ? waits : rows;
    if (sid !== '') go(addressOf('calls', only && !another ? only.call_sid : sid, route.query));
  };
  const sidColumn: Column<{ call_sid: string }> = {
    head: 'Call',
    width: 'minmax(104px, 1.6fr)',
    narrow: 'minmax(0, 1.2fr)',
    sort: (call) => call.call_sid,
    cell: (call) => <CallLink sid={call.call_sid} query={route.query} />,
  };
  const shared = { keyOf: (call: { call_sid: string }) => call.call_sid, selected: route.item };

  return (
    <div class="page full">
      <div class="row">
        <Search
          label="Search calls"
          placeholder="Call id, pod, merchant"
          value={q}
          onInput={(text) => refine({ q: text })}
          onEnter={lookUp}
        />
        <button type="button" class="btn" disabled={sid === ''} onClick={lookUp}>
          Look up, including ended calls
        </button>
        <Choices
          label="Calls"
          value={show}
          onChange={(value) => refine({ show: value })}
          options={[
            { value: '', text: 'Live', n: rows.length },
            { value: 'waiting', text: 'Waiting', n: waits.length },
          ]}
        />
      </div>
      <div class="with-panel" data-open={route.item === undefined ? undefined : ''}>
        {isWaiting ? (
          <Table
            {...shared}
            key="waiting"
            label="Waiting calls"
            columns={[sidColumn, ...waitingColumns]}
            rows={waits}
            sortedBy={-4}
            below={reasonOf}
            empty={
              <Empty icon="calls" title={isKnown ? 'No call waits' : 'Reading calls…'}>
                {isKnown && (
                  <>
                    If <code>hold</code> is configured, calls that find no pod wait here instead of being
                    refused.
                  </>
                )}
              </Empty>
            }
          />
        ) : (
          <Table
            {...shared}
            key="live"
            label="Live calls"
            columns={[sidColumn, ...liveColumns]}
            rows={rows}
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
        {route.item !== undefined && <CallPanel sid={route.item} />}
      </div>
    </div>
  );
}
