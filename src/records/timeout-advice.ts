/**
 * Whether a workflow's times fit what is seen of it. A timeout shorter than the work makes zombies of living records;
 * one that is far longer, or a threshold that is, only makes everybody wait for dead ones. Advice, never a change.
 */
import { formatDuration } from '../config/durations.js';
import { stuckAfterOf } from './bounds.js';
import type { History } from './operations.js';
import type { Workflow } from './workflow.js';

/** A timeout should leave room above the slowest: three times what all but one in a hundred need. */
const room = 3;
/** Below this nobody waits for anything. */
const shortestMs = 30_000;

export interface Times {
  timeoutMs: number;
  stuckAfterMs: number;
}

/**
 * The times that would fit. Without a p99 only what is certain: a timeout that living records exceed is raised. The
 * threshold for rows of others is never below the timeout; it is left alone otherwise, for their work is not seen.
 */
export function suggestTimes(
  now: Times,
  history: History,
  p99Seconds: number | null,
): Times & { whyTimeout: string; whyStuckAfter: string } {
  const say = (ms: number) => formatDuration(Math.ceil(ms / 1000) * 1000);
  const whole = (ms: number) => Math.ceil(ms / 1000) * 1000;
  const longestMs = (history.longestSeconds ?? 0) * 1000;
  let timeoutMs = now.timeoutMs;
  let whyTimeout = 'nothing that was seen speaks against it';
  if (p99Seconds !== null) {
    const neededMs = whole(Math.max(shortestMs, room * p99Seconds * 1000));
    const fits = timeoutMs >= p99Seconds * 1500 && timeoutMs <= 4 * neededMs;
    whyTimeout = `99 of 100 records take up to ${say(p99Seconds * 1000)}, and three times that is ${say(neededMs)}`;
    if (!fits) timeoutMs = neededMs;
  } else if (history.timedOut > 0 || longestMs > 0.8 * timeoutMs) {
    timeoutMs = whole(Math.max(2 * timeoutMs, 1.5 * longestMs));
    whyTimeout =
      history.timedOut > 0
        ? `${history.timedOut} records were taken away for it in the last 7 days, and how long they need is not known`
        : `one record has been worked on for ${say(longestMs)}`;
  }
  const stuckAfterMs = Math.max(now.stuckAfterMs, timeoutMs);
  const whyStuckAfter =
    stuckAfterMs > now.stuckAfterMs
      ? 'it must not be below `timeout`'
      : history.unclaimed > 0
        ? `${history.unclaimed} rows of others were brought back by it in the last 7 days; it must be longer than their longest work`
        : 'it only matters for rows that others put into Processing, and none was found in the last 7 days';
  return { timeoutMs, stuckAfterMs, whyTimeout, whyStuckAfter };
}

export function adviseTimes(
  workflow: Pick<Workflow, 'timeoutMs' | 'stuck'>,
  history: History,
  stuckAfterMs: number,
  /** 99 of 100 records take no longer, where a process has seen enough of them. */
  p99Seconds?: number | null,
): string[] {
  const { timeoutMs } = workflow;
  const afterMs = stuckAfterOf(workflow, stuckAfterMs);
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
