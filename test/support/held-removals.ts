/** Pods that the store knows and STATIC_PODS does not: the next list misses more than half of all, and the brake holds. */
import { assignmentOf } from '../../src/pool/registration.js';
import type { TestRouter } from './router.js';
import { until } from './until.js';

export const ghosts = ['ghost-1', 'ghost-2', 'ghost-3', 'ghost-4', 'ghost-5'];

export async function registerGhosts({ context }: Pick<TestRouter, 'context'>): Promise<void> {
  const pods = ghosts.map((name) => ({
    name,
    uid: '',
    pool: 'pool:basic' as const,
    suspended: '' as const,
    mustReport: false,
    metadata: '{}',
  }));
  // An impatient router may give up on a busy machine.
  await until(
    () => context.pools.register('', pods, assignmentOf(context.settings.tiers)),
    'they are registered',
  );
}

export async function holdGhosts(router: Pick<TestRouter, 'context'>): Promise<void> {
  const { context } = router;
  await registerGhosts(router);
  context.leadership.nudge();
  await until(async () => (await context.pools.removals()).held.length === ghosts.length, 'they are held');
}
