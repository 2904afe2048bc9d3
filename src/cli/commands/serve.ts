/** `smart-router serve`: runs a router, or several as workers, until a signal. */
import { InvalidArgumentError, Option } from 'commander';
import { type Config, loadConfig } from '../../config/config.js';
import { workers } from '../../config/fields.js';
import { limitGarbage } from '../../main/processes.js';
import type { Logger } from '../../observe/log.js';
import { command } from '../cli.js';
import { exitSoon, untilAborted, untilSignal } from '../signals.js';

const workersHelp =
  'routers to run as processes that share the ports, or auto: one per core (default: WORKERS, else 1)';

export const serve = command<{ workers?: string }>({
  name: 'serve',
  summary: 'run a router until a signal stops it',
  about:
    'Configured by environment variables: see `smart-router config` and docs/configuration.md. Logs go to stdout, one JSON document per line unless LOG_FORMAT=pretty.',
  json: 'LOG_FORMAT=json, and a failure to start is a JSON document too',
  examples: [
    ['serve', ''],
    ['serve --workers auto', 'one router per core, on the same ports'],
    ['config && smart-router serve', 'check first'],
    ['doctor', 'if it does not start'],
  ],
  options: [new Option('--workers <number>', workersHelp).argParser(checkWorkers)],
  async run({ cli, options: { json, workers: count } }) {
    cli.resident = true;
    await runRouter({
      ...cli.env,
      ...(json ? { LOG_FORMAT: 'json' } : {}),
      ...(count === undefined ? {} : { WORKERS: count }),
    });
  },
});

function checkWorkers(text: string): string {
  if ('value' in workers.read(text)) return text;
  throw new InvalidArgumentError(`It must be ${workers.expects}.`);
}

interface Running {
  log: Logger;
  /** Resolves to the reason if it has to stop without a signal. */
  mustStop: Promise<string>;
  stop(): Promise<void>;
  /** Ends its other processes at once. */
  kill(): void;
}

/** Modules are loaded here: the server's modules take ten times as long to load as all others. */
async function start(config: Config, stopped: Promise<unknown>): Promise<Running> {
  if (config.workers > 1) {
    const { WorkerGroup } = await import('../../main/workers.js');
    return WorkerGroup.start(config, stopped);
  }
  const { startRouter } = await import('../../main/router.js');
  const router = await startRouter(config);
  return {
    log: router.context.log,
    mustStop: router.lostLeadership.then(() => 'lost leadership'),
    stop: router.stop,
    kill: () => {},
  };
}

/** Resolves after a clean stop. A second signal ends the process at once. */
async function runRouter(env: NodeJS.ProcessEnv): Promise<void> {
  const config = loadConfig(env, 'serve');
  let running: Running | undefined;
  // Before the first await: process 1 of a container ignores a signal without a listener.
  const { signal, abort } = untilSignal(() => {
    running?.kill();
    process.exit(1);
  });
  const signalled = untilAborted(signal).then(() => String(signal.reason));
  limitGarbage();
  running = await start(config, signalled);
  const { log } = running;
  // The log gets the stack; index.ts then prints one line and exits.
  const logFatal = (error: unknown) => log.fatal({ err: error }, 'uncaught error; router exits');
  process.prependListener('uncaughtException', logFatal);
  process.prependListener('unhandledRejection', logFatal);
  const reason = await Promise.race([signalled, running.mustStop]);
  // From now on the first signal ends the process, also if none has stopped it.
  abort();
  log.info({ reason }, 'stopping; finishing requests in flight');
  await running.stop();
  log.info('stopped');
  exitSoon();
}
