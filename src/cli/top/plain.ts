/** `top` without a terminal: everything once as text, or one JSON document. */

import { table } from '../../terminal/table.js';
import { clean, type Paint } from '../../terminal/text.js';
import { eventLine } from '../commands/events.js';
import { stateOf } from '../commands/pods.js';
import { shownOf } from '../format.js';
import { loadParts, poolLines, problemLines } from './frame.js';
import { arrange, panelOf, type View } from './panels.js';
import { poolUses, type TopState } from './snapshot.js';

const maxRows = 20;
const eventsShown = 10;
const width = 120;

export function plainFrame(state: TopState, paint: Paint): string {
  const { snapshot, url, stale, nowMs, events } = state;
  const { status, replicas } = snapshot;
  const leader = clean(status.leader ?? (status.is_leader ? 'this router' : 'unknown'));
  const parts = [
    [
      `Smart Router ${clean(status.version)}`,
      paint(status.status === 'up' ? 'green' : 'red', status.status),
      clean(url),
    ].join('  '),
    [...loadParts(snapshot, paint), `leader ${leader}`, `replicas ${replicas ?? '-'}`].join('   '),
    ...problemLines(snapshot, stale, nowMs, paint),
  ].join('\n');
  const pools = poolLines(poolUses(snapshot), Number.POSITIVE_INFINITY, width, paint).map((line) =>
    line.slice(1),
  );
  const recent = events.slice(-eventsShown).map((event) => eventLine(event, event.at, paint));
  return [
    parts,
    pools.length > 0 ? pools.join('\n') : 'no pools yet',
    list('pods', state, paint),
    list('calls', state, paint),
    ...((snapshot.alerts?.length ?? 0) > 0 ? [list('alerts', state, paint)] : []),
    recent.length > 0 ? recent.join('\n') : 'no events',
  ]
    .map((part) => `${part}\n`)
    .join('\n');
}

function list(view: View, { snapshot, events, routerNowMs }: TopState, paint: Paint): string {
  const panel = panelOf(view, snapshot, events, routerNowMs);
  const rows = arrange(panel, { filter: '', sort: 0, reversed: false });
  if (rows.length === 0) return panel.empty;
  const shown = rows.slice(0, maxRows).map(({ cells }) => cells);
  const total = rows.length > maxRows ? `\n${shownOf(maxRows, rows.length, view.slice(0, -1))}` : '';
  const heads = panel.columns.map(([head]) => head);
  return table(heads, shown, paint).trimEnd() + total;
}

/** With the field names of the API. */
export function topDocument({ url, snapshot, events, stale, nowMs }: TopState): object {
  const { status, replicas, pods, calls, alerts, listsProblem, load } = snapshot;
  return {
    at: new Date(nowMs).toISOString(),
    url,
    stale_since: stale ? new Date(stale.sinceMs).toISOString() : null,
    status: status.status,
    version: status.version,
    leader: status.leader,
    is_leader: status.is_leader,
    replicas,
    active_calls: status.active_calls,
    calls_per_second: load.callsPerSecond,
    no_pods_per_second: load.noPodsPerSecond,
    p99_ms: load.p99Ms,
    lists_problem: listsProblem,
    pools: poolUses(snapshot).map(({ name, type, assigned, activeCalls, capacity, states }) => ({
      name,
      type,
      assigned,
      active_calls: activeCalls,
      capacity,
      ...states,
    })),
    pods: pods.map((pod) => ({ ...pod, state: stateOf(pod) })),
    calls,
    alerts,
    events: events.slice(-eventsShown),
  };
}
