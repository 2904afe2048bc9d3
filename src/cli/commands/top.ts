/** `smart-router top`: a live view of a router. */
import { Option } from 'commander';
import { isTerminal } from '../../terminal/text.js';
import { type GivenRouter, routerCommand } from '../access.js';
import { searchEvents } from '../event-stream.js';
import { duration } from '../input.js';
import { unlessAborted, untilSignal } from '../signals.js';
import { plainFrame, topDocument } from '../top/plain.js';
import { Poller } from '../top/poller.js';
import type { TopState } from '../top/snapshot.js';
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
    const { api, cli, options, paint } = given;
    const { once, interval, json } = options;
    if (once || (!isTerminal(cli.output.stdout, cli.env) && !json)) {
      const state = await readState(given);
      const failure = storeFailure(api.baseUrl, state.snapshot.status.status);
      return { document: topDocument(state), text: plainFrame(state, paint), failure };
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
    await unlessAborted(stop.signal, poller.start());
    if (stop.signal.aborted) return;
    print('snapshot');
    await unlessAborted(stop.signal, poller.run(stop.signal));
  } finally {
    stop.release();
  }
}
