/** `top` for whoever is no terminal: everything once, one below the other, or one JSON document. */

import { table } from '../../terminal/table.js';
import { clean, type Paint } from '../../terminal/text.js';
import { eventLine } from '../commands/events.js';
import { stateOf } from '../commands/pods.js';
import { shownOf } from '../format.js';
import { paceParts, poolLines, type Sight, troubles } from './frame.js';
import { poolUses } from './look.js';
import { arrange, panelOf, type View } from './panels.js';

const listed = 20;
const eventsShown = 10;
const width = 120;

export function plainFrame(sight: Sight, paint: Paint): string {
  const { look, url, pace, stale, nowMs, events } = sight;
  const { status, replicas } = look;
  const leader = clean(status.leader ?? (status.is_leader ? 'this router' : 'unknown'));
  const parts = [
    [
      `Smart Router ${clean(status.version)}`,
      paint(status.status === 'up' ? 'green' : 'red', status.status),
      clean(url),
    ].join('  '),
    [...paceParts(look, pace, paint), `leader ${leader}`, `replicas ${replicas ?? '-'}`].join('   '),
    ...troubles(look, stale, nowMs, paint),
  ].join('\n');
  const pools = poolLines(poolUses(look), Number.POSITIVE_INFINITY, width, paint).map((line) =>
    line.slice(1),
  );
  const recent = events.slice(-eventsShown).map((event) => eventLine(event, event.at, paint));
  return [
    parts,
    pools.length > 0 ? pools.join('\n') : 'no pools yet',
    list('pods', sight, paint),
    list('calls', sight, paint),
    ...((look.alerts?.length ?? 0) > 0 ? [list('alerts', sight, paint)] : []),
    recent.length > 0 ? recent.join('\n') : 'no events',
  ]
    .map((part) => `${part}\n`)
    .join('\n');
}

function list(view: View, { look, events, routerNowMs }: Sight, paint: Paint): string {
  const panel = panelOf(view, look, events, routerNowMs);
  const rows = arrange(panel, { filter: '', sort: 0, reversed: false });
  if (rows.length === 0) return panel.empty;
  const shown = rows.slice(0, listed).map(({ cells }) => cells);
  const total = rows.length > listed ? `\n${shownOf(listed, rows.length, view.slice(0, -1))}` : '';
  return table(panel.columns, shown, paint).trimEnd() + total;
}

/** Names as the API has them. */
export function topDocument({ url, look, pace, events, stale, nowMs }: Sight): object {
  const { status, replicas, pods, calls, alerts, listsProblem } = look;
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
    calls_per_second: pace.callsPerSecond,
    no_pods_per_second: pace.noPodsPerSecond,
    p99_ms: pace.p99Ms,
    lists_problem: listsProblem,
    pools: poolUses(look).map(({ name, type, assigned, activeCalls, capacity, states }) => ({
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
