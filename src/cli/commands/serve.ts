/** `smart-router serve`: runs a router, or several as workers, until a signal. */
import { type Command, InvalidArgumentError } from 'commander';
import { stopSignals } from '../../abort.js';
import { systemClock } from '../../clock.js';
import { type Config, loadConfig } from '../../config/config.js';
import { workers } from '../../config/fields.js';
import { limitHeapGrowth } from '../../main/processes.js';
import type { Logger } from '../../observe/log.js';
import { type Cli, describe } from '../cli.js';

export function serve(parent: Command, cli: Cli): void {
  const command = describe(parent.command('serve'), {
    summary: 'run a router until a signal',
    about:
      'Configured by environment variables: see `smart-router config` and docs/configuration.md. Logs go to stdout, one JSON document per line unless LOG_FORMAT=pretty.',
    json: 'LOG_FORMAT=json, and a failure to start is a JSON document too',
    examples: [
      ['serve', ''],
      ['serve --workers auto', 'one router per core, on the same ports'],
      ['config && smart-router serve', 'check first'],
      ['doctor', 'if it does not start'],
    ],
  });
  command.option(
    '--workers <number>',
    'routers to run as processes that share the ports, or auto: one per core (default: WORKERS, else 1)',
    checkWorkers,
  );
  command.action(async () => {
    cli.resident = true;
    const { json, workers: count } = command.opts<{ json?: true; workers?: string }>();
    cli.exitCode = await runRouter({
      ...cli.env,
      ...(json ? { LOG_FORMAT: 'json' } : {}),
      ...(count === undefined ? {} : { WORKERS: count }),
    });
  });
}

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

const exitDelayMs = 500;

/** Resolves to the exit code: 0 after a clean stop. A second signal ends the process at once. */
async function runRouter(env: NodeJS.ProcessEnv): Promise<number> {
  const config = loadConfig(env, 'serve');
  // Before the first await: process 1 of a container ignores a signal without a listener.
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    for (const name of stopSignals) process.once(name, () => resolve(name));
  });
  limitHeapGrowth();
  const running = await start(config, signalled);
  const { log } = running;
  // The log gets the stack; index.ts then prints one line and exits.
  const logFatal = (error: unknown) => log.fatal({ err: error }, 'uncaught error; router exits');
  process.prependListener('uncaughtException', logFatal);
  process.prependListener('unhandledRejection', logFatal);
  const reason = await Promise.race([signalled, running.mustStop]);
  const end = () => {
    running.kill();
    process.exit(1);
  };
  for (const name of stopSignals) process.on(name, end);
  log.info({ reason }, 'stopping; finishing requests in flight');
  await running.stop();
  log.info('stopped');
  // A connection that does not close must not keep the process alive.
  systemClock.after(exitDelayMs, () => process.exit(0), { unref: true });
  return 0;
}
