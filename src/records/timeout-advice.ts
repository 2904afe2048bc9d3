/**
 * Compares a workflow's durations with its observed processing times. A timeout shorter than the work turns live records into
 * zombies; one that is much too long delays the recovery of dead ones. Only advice: nothing is changed.
 */
import { formatDuration } from '../config/durations.js';
import type { History } from './store.js';
import { stuckAfterOf, type Workflow } from './workflow.js';

/** A timeout should be three times the p99. */
const room = 3;
/** A shorter timeout saves nothing. */
const minTimeoutMs = 30_000;

export interface Times {
  timeoutMs: number;
  stuckAfterMs: number;
}

const wholeSeconds = (ms: number) => Math.ceil(ms / 1000) * 1000;
const shown = (ms: number) => formatDuration(wholeSeconds(ms));

/**
 * Suggests durations. Without a p99, it only raises a timeout that live records exceed. `stuck.after` is never below the
 * timeout and otherwise stays: the work of other programs is not observed.
 */
export function suggestTimes(
  now: Times,
  history: History,
  p99Seconds: number | null,
): Times & { whyTimeout: string; whyStuckAfter: string } {
  const longestMs = (history.longestSeconds ?? 0) * 1000;
  let timeoutMs = now.timeoutMs;
  let whyTimeout = 'no observation speaks against it';
  if (p99Seconds !== null) {
    const neededMs = wholeSeconds(Math.max(minTimeoutMs, room * p99Seconds * 1000));
    const fits = timeoutMs >= p99Seconds * 1500 && timeoutMs <= 4 * neededMs;
    whyTimeout = `99 of 100 records take up to ${shown(p99Seconds * 1000)}; three times that is ${shown(neededMs)}`;
    if (!fits) timeoutMs = neededMs;
  } else if (history.timedOut > 0 || longestMs > 0.8 * timeoutMs) {
    timeoutMs = wholeSeconds(Math.max(2 * timeoutMs, 1.5 * longestMs));
    whyTimeout =
      history.timedOut > 0
        ? `${history.timedOut} records timed out in the last 7 days, and the time they need is unknown`
        : `one record has been processed for ${shown(longestMs)}`;
  }
  const stuckAfterMs = Math.max(now.stuckAfterMs, timeoutMs);
  const whyStuckAfter =
    stuckAfterMs > now.stuckAfterMs
      ? 'it must not be below `timeout`'
      : history.unclaimed > 0
        ? `rows of other programs recovered in the last 7 days: ${history.unclaimed}; it must be longer than their longest work`
        : 'it only concerns rows that other programs set to Processing, and none was found in the last 7 days';
  return { timeoutMs, stuckAfterMs, whyTimeout, whyStuckAfter };
}

export function adviseTimes(
  workflow: Pick<Workflow, 'timeoutMs' | 'stuck'>,
  { timedOut, longestSeconds, unclaimed }: History,
  stuckAfterMs: number,
  /** 99 of 100 records take no longer, where a process has seen enough of them. */
  p99Seconds?: number | null,
): string[] {
  const { timeoutMs } = workflow;
  const advice: string[] = [];
  if (timedOut > 0)
    advice.push(
      `${timedOut} records exceeded the timeout of ${shown(timeoutMs)} in the last 7 days: if they were still being processed, raise \`timeout\`; their traces are in smart_router.resets`,
    );
  if (longestSeconds !== null && longestSeconds * 1000 > 0.8 * timeoutMs)
    advice.push(
      `one record has been processed for ${shown(longestSeconds * 1000)}; the timeout is ${shown(timeoutMs)}`,
    );
  if (unclaimed > 0)
    advice.push(
      `rows found in Processing without a claim in the last 7 days: ${unclaimed}; another program writes that status, and each waits ${shown(stuckAfterOf(workflow, stuckAfterMs))}`,
    );
  if (typeof p99Seconds !== 'number') return advice;
  const neededMs = Math.max(minTimeoutMs, room * p99Seconds * 1000);
  const observed = `99 of 100 records take up to ${shown(p99Seconds * 1000)}: a \`timeout\` of ${shown(neededMs)}`;
  if (timeoutMs < p99Seconds * 1000 * 1.5) advice.push(`${observed} would be safer than ${shown(timeoutMs)}`);
  else if (timeoutMs > 4 * neededMs)
    advice.push(`${observed} instead of ${shown(timeoutMs)} would recover stuck records sooner`);
  return advice;
}
