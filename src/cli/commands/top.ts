/** `smart-router top`: a live view of a router; without a terminal everything once as text, or JSON documents. */
import { Option } from 'commander';
import { unlessAborted } from '../../clock.js';
import { table } from '../../terminal/table.js';
import { clean, isTerminal, paint } from '../../terminal/text.js';
import { type GivenRouter, routerCommand } from '../access.js';
import { searchEvents } from '../event-stream.js';
import { shownOf } from '../format.js';
import { duration } from '../input.js';
import { untilSignal } from '../signals.js';
import { loadParts, poolLines, problemLines } from '../top/frame.js';
import { arrange, panelOf, type View } from '../top/panels.js';
import { Poller } from '../top/poller.js';
import { poolUses, type TopState } from '../top/snapshot.js';
import { eventLine } from './events.js';
import { stateOf } from './pods.js';
import { storeFailure } from './status.js';

interface Options {
  once?: true;
  interval: number;
}

const maxIntervalMs = 3_600_000;
const eventsAgeMs = 10 * 60_000;
const maxEvents = 20;

export const top = routerCommand<Options>({
  name: 'top',
  summary: 'watch pools, pods, calls, events and alerts live, and drain pods by key',
  about:
    'Full screen on a terminal: ? shows the keys, q or Ctrl-C ends it with exit code 0. If stdout is not a terminal, or with TERM=dumb, it prints everything once, as with --once. If the router becomes unreachable the view is marked stale and reads are retried; only the first read must succeed.',
  json: 'print a JSON document per line at every refresh; with --once only one',
  examples: [
    ['top', ''],
    ['top --interval 5s', 'refresh less often'],
    ['top --once', 'everything once, also without a terminal'],
    ['top --json | jq -c .pools', 'for a script'],
  ],
  options: [
    new Option('--once', 'print everything once and exit'),
    new Option('--interval <duration>', 'time between two refreshes, at least 200ms')
      .argParser(duration(200, maxIntervalMs))
      .default(1000, '1s'),
  ],
  async run(given) {
    const { api, cli, options } = given;
    const { once, interval, json } = options;
    if (once || (!isTerminal(cli.output.streams.stdout, cli.env) && !json)) {
      const state = await readState(given);
      const failure = storeFailure(api.baseUrl, state.snapshot.status.status);
      return { document: topDocument(state), text: plainFrame(state), failure };
    }
    if (json) await printDocuments(given);
    else await (await import('../top/live.js')).liveTop(api, cli, interval);
    return undefined;
  },
});

async function readState({ api, cli: { clock }, options }: GivenRouter<Options>): Promise<TopState> {
  const poller = new Poller({ api, clock, intervalMs: options.interval, onChange: () => undefined });
  await poller.start();
  const state = poller.state();
  // Without the store there are no events; the rest is still worth showing.
  if (state.snapshot.status.status === 'down') return state;
  const since = String(Math.max(0, Math.floor(state.routerNowMs - eventsAgeMs)));
  return { ...state, events: await searchEvents(api, {}, { since, limit: maxEvents }) };
}

/** Prints until Ctrl-C. A failed refresh is a document too, except the first. */
async function printDocuments({ api, cli, options }: GivenRouter<Options>): Promise<void> {
  const { output, clock } = cli;
  const stop = untilSignal();
  const print = (what: 'snapshot' | 'failure' | 'event') => {
    if (what === 'event') return;
    const state = poller.state();
    const { stale } = state;
    const failed = stale ? { error: stale.reason, code: 'unreachable' } : {};
    output.out(JSON.stringify({ success: stale === undefined, ...failed, ...topDocument(state) }));
  };
  const poller = new Poller({ api, clock, intervalMs: options.interval, onChange: print });
  try {
    await unlessAborted(poller.start(), stop.signal);
    if (stop.signal.aborted) return;
    print('snapshot');
    await unlessAborted(poller.run(stop.signal), stop.signal);
  } finally {
    stop.release();
  }
}

const maxRows = 20;
const eventsShown = 10;
const width = 120;

function plainFrame(state: TopState): string {
  const { snapshot, url, stale, nowMs, events } = state;
  const { status, replicas } = snapshot;
  const leader = clean(status.leader ?? (status.is_leader ? 'this router' : 'unknown'));
  const parts = [
    [
      `Smart Router ${clean(status.version)}`,
      paint(status.status === 'up' ? 'green' : 'red', status.status),
      clean(url),
    ].join('  '),
    [...loadParts(snapshot), `leader ${leader}`, `replicas ${replicas ?? '-'}`].join('   '),
    ...problemLines(snapshot, stale, nowMs),
  ].join('\n');
  const pools = poolLines(poolUses(snapshot), Number.POSITIVE_INFINITY, width).map((line) => line.slice(1));
  const recent = events.slice(-eventsShown).map((event) => eventLine(event, event.at));
  return [
    parts,
    pools.length > 0 ? pools.join('\n') : 'no pools yet',
    list('pods', state),
    list('calls', state),
    ...((snapshot.alerts?.length ?? 0) > 0 ? [list('alerts', state)] : []),
    recent.length > 0 ? recent.join('\n') : 'no events',
  ]
    .map((part) => `${part}\n`)
    .join('\n');
}

function list(view: View, { snapshot, events, routerNowMs }: TopState): string {
  const panel = panelOf(view, snapshot, events, routerNowMs);
  const rows = arrange(panel, { filter: '', sort: 0, reversed: false });
  if (rows.length === 0) return panel.empty;
  const shown = rows.slice(0, maxRows).map(({ cells }) => cells);
  const total = rows.length > maxRows ? `\n${shownOf(maxRows, rows.length, view.slice(0, -1))}` : '';
  const heads = panel.columns.map(([head]) => head);
  return table(heads, shown).trimEnd() + total;
}

/** With the field names of the API. */
function topDocument({ url, snapshot, events, stale, nowMs }: TopState): object {
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
