/** `smart-router top`: a live view of a router. */
import { type Command, Option } from 'commander';
import { isTerminal } from '../../terminal/text.js';
import type { RouterApi } from '../api.js';
import { type Cli, describeOperator, duration, printOutcome, withRouter } from '../cli.js';
import { searchEvents } from '../event-stream.js';
import { Failure } from '../failure.js';
import { unlessAborted, untilSignal } from '../signals.js';
import { plainFrame, topDocument } from '../top/plain.js';
import { readSnapshot, type TopState } from '../top/snapshot.js';

interface Options {
  once?: true;
  interval: number;
  json?: true;
}

const maxIntervalMs = 3_600_000;
const eventsAgeMs = 10 * 60_000;
const maxEvents = 20;

export function top(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('top'), {
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
  })
    .option('--once', 'print everything once and exit')
    .addOption(
      new Option('--interval <duration>', 'time between two refreshes, at least 200ms')
        .argParser(duration(200, maxIntervalMs))
        .default(1000, '1s'),
    );
  command.action(() =>
    withRouter(command, cli, async (api) => {
      const { once, interval, json } = command.opts<Options>();
      if (once || (!isTerminal(cli.output.stdout, cli.env) && !json)) {
        const state = await readState(api, cli);
        printOutcome(command, cli, {
          document: topDocument(state),
          text: plainFrame(state, cli.output.paint),
          failure: storeFailure(api, state),
        });
      } else if (json) await printDocuments(api, cli, interval);
      else await (await import('../top/live.js')).liveTop(api, cli, interval);
    }),
  );
}

async function readState(api: RouterApi, cli: Cli): Promise<TopState> {
  const snapshot = await readSnapshot(api, undefined);
  const { nowMs } = snapshot;
  const since = String(Math.max(0, Math.floor(nowMs - eventsAgeMs)));
  // Without the store there are no events; the rest is still worth showing.
  const events =
    snapshot.status.status === 'up' ? await searchEvents(api, {}, { since, limit: maxEvents }) : [];
  return {
    url: api.baseUrl,
    snapshot,
    events,
    stale: undefined,
    nowMs: cli.clock.now(),
    routerNowMs: nowMs,
  };
}

/** Like `status`: there is output, but the router cannot serve calls. */
function storeFailure(api: RouterApi, { snapshot: { status } }: TopState): Failure | undefined {
  if (status.status === 'up') return undefined;
  return new Failure('store_unavailable', `the store of the router at ${api.baseUrl} is unreachable`);
}

/** Prints until Ctrl-C. A failed refresh is a document too, except the first. */
async function printDocuments(api: RouterApi, cli: Cli, intervalMs: number): Promise<void> {
  const { Poller } = await import('../top/poller.js');
  const { output, clock } = cli;
  const stop = untilSignal();
  const print = (what: 'snapshot' | 'failure' | 'event') => {
    if (what === 'event') return;
    const state = poller.state();
    const { stale } = state;
    const failed = stale ? { error: stale.reason, code: 'unreachable' } : {};
    output.out(JSON.stringify({ success: stale === undefined, ...failed, ...topDocument(state) }));
  };
  const poller = new Poller({ api, clock, intervalMs, onChange: print });
  try {
    await unlessAborted(stop.signal, poller.start());
    if (stop.signal.aborted) return;
    print('snapshot');
    await unlessAborted(stop.signal, poller.run(stop.signal));
  } finally {
    stop.release();
  }
}
