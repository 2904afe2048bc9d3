/** `smart-router serve`: a router until it is told to stop. */
import { systemClock } from '../clock.js';
import { loadConfig } from '../config/config.js';
import { startRouter } from '../main/router.js';

const signals = ['SIGTERM', 'SIGINT'] as const;
const lastMomentMs = 500;

/** Resolves to the exit code: 0 after a clean stop. A second signal ends it at once. */
export async function serve(env: NodeJS.ProcessEnv): Promise<number> {
  const config = loadConfig(env, 'serve');
  // Before anything is waited for: as process 1 of a container a signal without a listener is ignored.
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    for (const name of signals) process.once(name, () => resolve(name));
  });
  const router = await startRouter(config);
  const { log } = router.context;
  // The log keeps where it came from; what then ends the process says it in one line (index.ts).
  const keep = (error: unknown) => {
    log.fatal({ err: error }, 'an error that nobody caught: the router ends');
  };
  process.prependListener('uncaughtException', keep);
  process.prependListener('unhandledRejection', keep);
  const reason = await Promise.race([signalled, router.lostLeadership.then(() => 'lost leadership')]);
  for (const name of signals) process.on(name, () => process.exit(1));
  log.info({ reason }, 'stopping: finishing what is in flight');
  await router.stop();
  log.info('stopped');
  // A connection that does not close must not keep the process: the timer holds nothing up by itself.
  systemClock.after(lastMomentMs, () => process.exit(0), { unref: true });
  return 0;
}
