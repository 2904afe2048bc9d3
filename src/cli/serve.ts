/** `smart-router serve`: a router until it is told to stop. */
import { loadConfig } from '../config.js';
import { type RunningRouter, startRouter } from '../main.js';

/** Resolves to the exit code: 0 after a clean stop. A second signal ends it at once. */
export async function serve(env: NodeJS.ProcessEnv): Promise<number> {
  const config = loadConfig(env, 'serve');
  const router = await startRouter(config);
  // The log keeps where it came from; what then ends the process says it in one line (index.ts).
  const keep = (error: unknown) => {
    router.context.log.fatal({ err: error }, 'an error that nobody caught: the router ends');
  };
  process.prependListener('uncaughtException', keep);
  process.prependListener('unhandledRejection', keep);
  await untilStopped(router);
  return 0;
}

/** Waits for SIGTERM, SIGINT or a lost leadership, then stops `router` cleanly. */
export async function untilStopped(router: RunningRouter): Promise<void> {
  const reason = await new Promise<NodeJS.Signals | 'lost leadership'>((resolve) => {
    for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, () => resolve(name));
    void router.lostLeadership.then(() => resolve('lost leadership'));
  });
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => process.exit(1));
  router.context.log.info({ reason }, 'stopping: finishing what is in flight');
  await router.stop();
  router.context.log.info('stopped');
}
