/** Live calls, and the timeline of any call by its id, including ended ones. */
import { useMemo } from 'preact/hooks';
import { count } from '../labels';
import { useLive, useTopics } from '../live/use-live';
import { addressOf, go, type Route, refine } from '../routes';
import type { Call } from '../types';
import { CallPanel } from '../ui/call-panel';
import { Age, Countdown, Empty, PodLink, PoolChip, Search } from '../ui/parts';
import { type Column, Table } from '../ui/table';

export function CallsPage({ route }: { route: Route }) {
  useTopics('calls');
  const version = useLive((state) => state.fleetVersion);
  const calls = useLive((state) => state.calls);
  const isKnown = useLive((state) => state.known.has('calls'));
  const { q = '' } = Object.fromEntries(route.query);
  const search = (text: string) => refine(addressOf('calls', route.item, { q: text }));
  // The map changes in place; the version shows that it changed.
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
          below={(call) => (
            <>
              <PoolChip pool={call.source_pool} />
              {call.merchant_id && ` for ${call.merchant_id}`} · running for <Age since={call.allocated_at} />
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
        {route.item !== undefined && (
          <CallPanel sid={route.item} onClose={() => go(addressOf('calls', undefined, { q }))} />
        )}
      </div>
    </div>
  );
}
