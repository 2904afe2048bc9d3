/** A router's looks at itself, without waiting 10 s for each. */
import type { TestRouter } from './router.js';
import { until } from './until.js';

/** Resolves when a look has begun and ended since: one that was under way when this was called does not count. */
export async function looked({ context }: TestRouter): Promise<void> {
  const rounds = () => context.history.loop.state.rounds;
  const before = rounds();
  await until(() => {
    context.history.loop.nudge();
    return rounds() >= before + 2;
  }, 'the router has looked twice');
}
