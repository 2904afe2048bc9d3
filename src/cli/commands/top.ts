/** `smart-router top`: a router, live. */
import { type Command, Option } from 'commander';
import type { RouterApi } from '../api.js';
import { type Cli, describeOperator, duration, printOutcome, withRouter } from '../cli.js';
import { readKept } from '../event-stream.js';
import { Failure } from '../failure.js';
import { unlessAborted, untilSignal } from '../signals.js';
import type { Sight } from '../top/frame.js';
import { look } from '../top/look.js';
import { plainFrame, topDocument } from '../top/plain.js';

interface Options {
  once?: true;
  interval: number;
  json?: true;
}

const longestIntervalMs = 3_600_000;
const eventsMs = 10 * 60_000;
const events = 20;

export function top(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('top'), {
    summary: 'watch pools, pods, calls, events and alerts live, and drain pods by key',
    about:
      'Full screen on a terminal: ? shows the keys, q or Ctrl-C ends it with exit code 0. Where stdout is no terminal, or TERM=dumb, it prints everything once, as with --once. A router that goes away is shown as stale and found again by itself; only the first answer must come.',
    json: 'print a JSON document at every refresh, each on a line of its own; with --once only one',
    examples: [
      ['top', ''],
      ['top --interval 5s', 'look less often'],
      ['top --once', 'everything once, without a terminal too'],
      ['top --json | jq -c .pools', 'for a script'],
    ],
  })
    .option('--once', 'print everything once and end')
    .addOption(
      new Option('--interval <duration>', 'time between two looks, at least 200ms')
        .argParser(duration(200, longestIntervalMs))
        .default(1000, '1s'),
    );
  command.action(() =>
    withRouter(command, cli, async (api) => {
      const { once, interval, json } = command.opts<Options>();
      const isScreen = cli.screen.stdout.isTTY === true && cli.env.TERM !== 'dumb';
      if (once || (!isScreen && !json)) {
        const sight = await see(api, cli);
        printOutcome(command, cli, {
          document: topDocument(sight),
          text: plainFrame(sight, cli.screen.paint),
          failure: storeFailure(api, sight),
        });
      } else if (json) await documents(api, cli, interval);
      else await (await import('../top/live.js')).liveTop(api, cli, interval);
    }),
  );
}

async function see(api: RouterApi, cli: Cli): Promise<Sight> {
  const seen = await look(api, undefined);
  const { nowMs } = seen;
  const since = String(Math.max(0, Math.floor(nowMs - eventsMs)));
  // While the store is away there are no events to be read, and everything else is worth to be seen.
  const kept =
    seen.status.status === 'up' ? await readKept(api, cli.clock, {}, { since, limit: events }) : [];
  return {
    url: api.baseUrl,
    look: seen,
    pace: seen.pace,
    events: kept,
    stale: undefined,
    nowMs: cli.clock.now(),
    routerNowMs: nowMs,
  };
}

/** As `status` does: there is something to see, and the router cannot serve calls. */
function storeFailure(api: RouterApi, { look: { status } }: Sight): Failure | undefined {
  if (status.status === 'up') return undefined;
  return new Failure('store_unavailable', `the store of the router at ${api.baseUrl} does not answer`);
}

/** Until Ctrl-C. A refresh that fails is a document too, unless it is the first. */
async function documents(api: RouterApi, cli: Cli, intervalMs: number): Promise<void> {
  const { Watch } = await import('../top/watch.js');
  const { screen, clock } = cli;
  const stop = untilSignal();
  const print = (what: 'look' | 'failure' | 'event') => {
    if (what === 'event') return;
    const sight = watch.sight();
    const { stale } = sight;
    const failed = stale ? { error: stale.reason, code: 'unreachable' } : {};
    screen.out(JSON.stringify({ success: stale === undefined, ...failed, ...topDocument(sight) }));
  };
  const watch = new Watch({ api, clock, intervalMs, onChange: print });
  try {
    await unlessAborted(stop.signal, watch.begin());
    if (stop.signal.aborted) return;
    print('look');
    await unlessAborted(stop.signal, watch.run(stop.signal));
  } finally {
    stop.release();
  }
}
