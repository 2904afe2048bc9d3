/** `smart-router serve`: runs a router until a signal. */
import type { Command } from 'commander';
import { stopSignals } from '../../abort.js';
import { systemClock } from '../../clock.js';
import { loadConfig } from '../../config/config.js';
import { limitHeapGrowth } from '../../main/heap.js';
import { type Cli, describe } from '../cli.js';

export function serve(parent: Command, cli: Cli): void {
  const command = describe(parent.command('serve'), {
    summary: 'run a router until a signal',
    about:
      'Configured by environment variables: see `smart-router config` and docs/configuration.md. Logs go to stdout, one JSON document per line unless LOG_FORMAT=pretty.',
    json: 'LOG_FORMAT=json, and a failure to start is a JSON document too',
    examples: [
      ['serve', ''],
      ['config && smart-router serve', 'check first'],
      ['doctor', 'if it does not start'],
    ],
  });
  command.action(async () => {
    cli.resident = true;
    const { json } = command.opts<{ json?: true }>();
    cli.exitCode = await runRouter(json ? { ...cli.env, LOG_FORMAT: 'json' } : cli.env);
  });
}

const exitDelayMs = 500;

/** Resolves to the exit code: 0 after a clean stop. A second signal ends the process at once. */
async function runRouter(env: NodeJS.ProcessEnv): Promise<number> {
  const config = loadConfig(env, 'serve');
  // Before the first await: process 1 of a container ignores a signal without a listener.
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    for (const name of stopSignals) process.once(name, () => resolve(name));
  });
  // Loaded here: the server's modules take ten times as long to load as all others.
  const { startRouter } = await import('../../main/router.js');
  limitHeapGrowth();
  const router = await startRouter(config);
  const { log } = router.context;
  // The log gets the stack; index.ts then prints one line and exits.
  const logFatal = (error: unknown) => log.fatal({ err: error }, 'uncaught error; router exits');
  process.prependListener('uncaughtException', logFatal);
  process.prependListener('unhandledRejection', logFatal);
  const reason = await Promise.race([signalled, router.lostLeadership.then(() => 'lost leadership')]);
  for (const name of stopSignals) process.on(name, () => process.exit(1));
  log.info({ reason }, 'stopping; finishing requests in flight');
  await router.stop();
  log.info('stopped');
  // A connection that does not close must not keep the process alive.
  systemClock.after(exitDelayMs, () => process.exit(0), { unref: true });
  return 0;
}
