/**
 * Whether a workflow's times fit what is seen of it. A timeout shorter than the work makes zombies of living records;
 * one that is far longer, or a threshold that is, only makes everybody wait for dead ones. Advice, never a change.
 */
import { formatDuration } from '../durations.js';
import type { History } from './by-hand.js';
import type { Workflow } from './workflow.js';

/** A timeout should leave room above the slowest: three times what all but one in a hundred need. */
const room = 3;
/** Below this nobody waits for anything. */
const shortestMs = 30_000;

export function adviseTimes(
  workflow: Pick<Workflow, 'timeoutMs' | 'stuck'>,
  history: History,
  stuckAfterMs: number,
  /** 99 of 100 records take no longer, where a process has seen enough of them. */
  p99Seconds?: number | null,
): string[] {
  const { timeoutMs } = workflow;
  const afterMs = workflow.stuck.afterMs ?? Math.max(stuckAfterMs, timeoutMs);
  const advice: string[] = [];
  const say = (ms: number) => formatDuration(Math.ceil(ms / 1000) * 1000);
  if (history.timedOut > 0)
    advice.push(
      `${history.timedOut} of its records were taken away after the timeout of ${say(timeoutMs)} in the last 7 days: if they were still at work, raise \`timeout\`; what they were doing is in smart_router.resets`,
    );
  if (history.longestSeconds !== null && history.longestSeconds * 1000 > 0.8 * timeoutMs)
    advice.push(
      `one of its records has been worked on for ${say(history.longestSeconds * 1000)}, and the timeout is ${say(timeoutMs)}`,
    );
  if (history.unclaimed > 0)
    advice.push(
      `${history.unclaimed} rows in Processing that nobody had claimed were found in the last 7 days: something else writes that status; they wait ${say(afterMs)} each`,
    );
  if (typeof p99Seconds !== 'number') return advice;
  const neededMs = Math.max(shortestMs, room * p99Seconds * 1000);
  if (timeoutMs < p99Seconds * 1000 * 1.5)
    advice.push(
      `99 of 100 records take up to ${say(p99Seconds * 1000)}: a \`timeout\` of ${say(neededMs)} would be safer than ${say(timeoutMs)}`,
    );
  else if (timeoutMs > 4 * neededMs)
    advice.push(
      `99 of 100 records take up to ${say(p99Seconds * 1000)}: a \`timeout\` of ${say(neededMs)} instead of ${say(timeoutMs)} would bring stuck ones back sooner`,
    );
  return advice;
}
