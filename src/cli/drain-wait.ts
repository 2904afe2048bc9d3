/**
 * Waiting for a draining pod's last call.
 *
 * The router holds the request until the last call has ended or the time is up, so progress is read beside it.
 * It also answers early when it shuts down itself; then, and when the connection breaks, the rest of the wait
 * is asked for again, of whichever replica answers. Once the drain is acknowledged only time, Ctrl-C or the
 * last call end this.
 */

import { formatDuration } from '../config/durations.js';
import { clean } from '../terminal/text.js';
import { count, countdown, span } from './ages.js';
import type { Drained, Pod } from './answers.js';
import type { RouterApi } from './api.js';
import { type Cli, type Outcome, ownUid } from './cli.js';
import { exitCodes } from './exit-codes.js';
import { Failure, toFailure } from './failure.js';

const lookEveryMs = 1000;

interface Waiting {
  api: RouterApi;
  cli: Cli;
  pod: string;
  waitMs: number;
  /** With --json nothing but the document, unless somebody watches. */
  quiet: boolean;
}

interface Seen {
  calls: number | undefined;
  drainingUntil: string | null;
  acknowledged: boolean;
  nowMs: number;
}

export async function waitForDrain(waiting: Waiting): Promise<Outcome> {
  const { cli, pod, waitMs } = waiting;
  const startMs = cli.clock.monotonic();
  const seen: Seen = { calls: undefined, drainingUntil: null, acknowledged: false, nowMs: cli.clock.now() };
  const interrupted = new AbortController();
  const done = new AbortController();
  const interrupt = () => interrupted.abort();
  process.once('SIGINT', interrupt);
  const watching = watch(waiting, seen, startMs, AbortSignal.any([interrupted.signal, done.signal]));
  try {
    const drained = await untilDrained(waiting, seen, startMs + waitMs, interrupted.signal);
    const tookMs = cli.clock.monotonic() - startMs;
    if (drained.active_calls === 0) {
      const text = `Pod ${clean(pod)} is draining and has no calls (waited ${span(tookMs)}).\n`;
      return { document: drained, text: `${text}${endsByItself(drained, seen.nowMs)}` };
    }
    const left = `${count(drained.active_calls, 'call')} still live on ${clean(pod)} after ${span(tookMs)}`;
    return {
      document: drained,
      text: '',
      failure: new Failure('calls_still_live', `${left}. ${goesOn(pod, seen)}`),
    };
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    const calls = seen.calls === undefined ? '' : ` with ${count(seen.calls, 'live call')}`;
    const failure = new Failure(
      'interrupted',
      `stopped waiting for ${clean(pod)}${calls}. ${goesOn(pod, seen)}`,
    );
    return { document: { pod_name: pod, active_calls: seen.calls ?? null }, text: '', failure };
  } finally {
    process.off('SIGINT', interrupt);
    done.abort();
    await watching;
  }
}

function goesOn(pod: string, { drainingUntil, nowMs }: Seen): string {
  const left = drainingUntil ? ` (${countdown(drainingUntil, nowMs)})` : '';
  return `The drain goes on${left}: \`smart-router drain ${clean(pod)} --wait\` waits again, \`smart-router undrain ${clean(pod)}\` ends it.`;
}

/** A line that says when the drain ends; empty for a router that does not say it. */
export function endsByItself({ drain_expires_at: at }: Drained, nowMs: number): string {
  const atMs = Date.parse(at ?? '');
  if (Number.isNaN(atMs)) return '';
  const left = formatDuration(Math.round(Math.max(0, atMs - nowMs) / 1000) * 1000);
  return `The drain ends by itself at ${new Date(atMs).toISOString()} (in ${left}).\n`;
}

async function untilDrained(
  { api, cli, pod, quiet }: Waiting,
  seen: Seen,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<Drained> {
  let told = false;
  for (;;) {
    const leftMs = Math.max(1, Math.ceil(deadlineMs - cli.clock.monotonic()));
    try {
      const { body, nowMs } = await api.send<Drained>('/drain', {
        method: 'POST',
        body: { pod_name: pod, uid: ownUid(pod, cli.env), wait: `${leftMs}ms` },
        timeoutMs: leftMs + api.timeoutMs,
        signal,
        has: 'active_calls',
      });
      seen.acknowledged = true;
      seen.calls = body.active_calls;
      seen.nowMs = nowMs;
      if (body.active_calls === 0 || cli.clock.monotonic() >= deadlineMs) return body;
    } catch (error) {
      const failure = toFailure(error);
      if (signal.aborted || !seen.acknowledged) throw failure;
      if (failure.code === 'pod_not_found' || failure.code === 'pod_replaced') return gone(pod);
      if (failure.exitCode !== exitCodes.unreachable || cli.clock.monotonic() >= deadlineMs) throw failure;
      if (!told && !quiet) cli.screen.err(`${failure.message} Trying again: the drain goes on.`);
      told = true;
    }
    await cli.clock.sleep(lookEveryMs, signal);
    if (signal.aborted) throw new Failure('interrupted', 'interrupted');
  }
}

/** A pod that was removed or replaced while it drained has no calls: they ended with it. */
function gone(pod_name: string): Drained {
  const message = `Pod ${pod_name} was removed; its calls have ended.`;
  return { success: true, pod_name, has_active_call: false, active_calls: 0, message };
}

/** Looks at the pod once a second and says how far it is. A look that fails says nothing. */
async function watch(
  { api, cli, pod, waitMs, quiet }: Waiting,
  seen: Seen,
  startMs: number,
  signal: AbortSignal,
): Promise<void> {
  const { clock, screen } = cli;
  let told: number | undefined;
  // The drain itself first: a look before it would show a pod that does not drain yet.
  await clock.sleep(100, signal);
  while (!signal.aborted) {
    try {
      const { body, nowMs } = await api.send<Pod>(`/pod/${encodeURIComponent(pod)}`, {
        signal,
        has: 'pod_name',
      });
      seen.calls = body.calls.length;
      seen.drainingUntil = body.draining_until;
      seen.acknowledged ||= body.is_draining;
      seen.nowMs = nowMs;
    } catch {
      // The request that waits will say it, if it is serious.
    }
    if (signal.aborted) return;
    if (seen.calls !== undefined) {
      const left = `draining ${clean(pod)}: ${count(seen.calls, 'call')} left`;
      if (screen.watched) {
        screen.progress(`${left}, ${span(clock.monotonic() - startMs)} of ${span(waitMs)}`);
      } else if (!quiet && seen.calls !== told) screen.err(left);
      told = seen.calls;
    }
    await clock.sleep(lookEveryMs, signal);
  }
}
