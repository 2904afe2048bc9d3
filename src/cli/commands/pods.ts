/** `smart-router pods`, `drain` and `undrain`. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { formatDuration } from '../../config/durations.js';
import { type Cell, facts, table } from '../../terminal/table.js';
import { type Colour, clean } from '../../terminal/text.js';
import type { RouterApi } from '../api.js';
import {
  answerWith,
  type Cli,
  describeOperator,
  duration,
  type Outcome,
  ownUid,
  wholeNumber,
} from '../cli.js';
import { exitCodes, Failure, toFailure } from '../failure.js';
import { age, count, countdown, leaseCell, leaseColour, shownOf, span } from '../format.js';
import {
  byText,
  type Drained,
  type Pod,
  type Pool,
  poolIdOf,
  readAll,
  readStatus,
  type Undrained,
} from '../replies.js';

export const states = ['free', 'busy', 'draining', 'blocked'] as const;
export type State = (typeof states)[number];

interface Options {
  pool?: string;
  state?: State;
  limit?: number;
}

export function pods(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('pods').argument('[pod]', 'show only this one'), {
    summary: 'list pods, or show one',
    about:
      'States: free (no call), busy (one call or more), draining (finishes its calls, or terminating), blocked (not ready, or awaiting a report).',
    examples: [
      ['pods', ''],
      ['pods --pool gold --state free', 'who could take a call of this pool'],
      ['pods --state draining --json', 'for a script'],
      ['pods voice-agent-0', 'one pod with its calls'],
    ],
    exits: [4],
  })
    .option('--pool <pool>', 'only this pool: gold, or merchant:acme')
    .addOption(new Option('--state <state>', 'only pods in this state').choices(states))
    .option('--limit <n>', 'show at most so many', wholeNumber(1, 10_000_000));
  answerWith(command, cli, (api) => {
    const [pod] = command.args;
    return pod === undefined ? listPods(api, cli, command.opts<Options>()) : showPod(api, cli, pod);
  });
}

async function listPods(api: RouterApi, cli: Cli, { pool, state, limit }: Options): Promise<Outcome> {
  const { pools } = (await readStatus(api)).body;
  const wanted = pool === undefined ? undefined : poolIdOf(pool, pools);
  const { body, nowMs } = await readAll<Pod>(api, 'pods', wanted, (pod) => pod.pod_name);
  const all = body
    .filter((pod) => state === undefined || stateOf(pod) === state)
    .sort((a, b) => byText(a.tier, b.tier) || byText(a.pod_name, b.pod_name));
  const shown = all.slice(0, limit);
  const rows = shown.map((pod): Cell[] => {
    const state = stateOf(pod);
    return [
      pod.pod_name,
      pod.tier,
      { text: state, colour: stateColours[state] },
      `${pod.calls.length}/${callsPerPod(pools[pod.tier])}`,
      leaseCell(soonest(pod), nowMs),
      note(pod, nowMs),
    ];
  });
  const columns = [
    { head: 'POD' },
    { head: 'POOL' },
    { head: 'STATE' },
    { head: 'CALLS', align: 'right' },
    { head: 'LEASE' },
    { head: 'CALL, OR WHY NOT' },
  ] as const;
  const total = shownOf(shown.length, all.length, 'pod');
  return {
    document: { pods: shown.map((pod) => ({ ...pod, state: stateOf(pod) })), total: all.length },
    text: shown.length === 0 ? 'no pods\n' : `${table(columns, rows, cli.screen.paint)}\n${total}\n`,
  };
}

async function showPod(api: RouterApi, cli: Cli, name: string): Promise<Outcome> {
  const { body, nowMs } = await api.send<Pod>(`/pod/${encodeURIComponent(name)}`, { has: 'pod_name' });
  const state = stateOf(body);
  const leases = body.leases.map(({ call_sid, lease_expires_at }): [string, Cell] => [
    'call',
    {
      text: `${call_sid}, lease ${countdown(lease_expires_at, nowMs)}`,
      colour: leaseColour(lease_expires_at, nowMs),
    },
  ]);
  const text = facts(
    [
      ['pod', body.pod_name],
      ['pool', body.tier],
      ['state', { text: state, colour: stateColours[state] }],
      ...(body.blocked_by ? [['blocked by', reason(body, nowMs)] as [string, Cell]] : []),
      ...(body.uid ? [['uid', body.uid] as [string, Cell]] : []),
      ['calls', body.calls.length],
      ...leases,
    ],
    cli.screen.paint,
  );
  return { document: { ...body, state }, text };
}

export const stateColours: Readonly<Record<State, Colour>> = {
  free: 'green',
  busy: 'bold',
  draining: 'yellow',
  blocked: 'red',
};

export function stateOf(pod: Pod): State {
  if (pod.is_draining) return 'draining';
  if (pod.blocked_by) return 'blocked';
  return pod.calls.length > 0 ? 'busy' : 'free';
}

export function callsPerPod(pool: Pool | undefined): string {
  return pool && pool.assigned > 0 ? String(pool.capacity / pool.assigned) : '?';
}

export function soonest(pod: Pod): string | undefined {
  return pod.leases.map(({ lease_expires_at }) => lease_expires_at).sort()[0];
}

export function note(pod: Pod, nowMs: number): string {
  if (pod.blocked_by) return reason(pod, nowMs);
  const [first = '', ...more] = pod.calls;
  return more.length > 0 ? `${first} and ${more.length} more` : first;
}

function reason({ blocked_by, draining_until, last_report_at }: Pod, nowMs: number): string {
  const until = draining_until ? `, ${countdown(draining_until, nowMs)}` : '';
  const isSilent = blocked_by === 'awaiting_report' && last_report_at;
  const silence = isSilent ? `: no report for ${age(last_report_at, nowMs)}` : '';
  return `${(blocked_by ?? '').replaceAll('_', ' ')}${silence}${until}`;
}

const defaultWaitMs = 5 * 60_000;
const longestWaitMs = 24 * 3_600_000;

export function drain(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('drain').argument('<pod>', 'name of the pod'), {
    summary: 'give a pod no new calls; running ones go on',
    about:
      'The drain ends by itself after DRAINING_TTL of the router (or the wait and 30s, if that is longer). Ctrl-C ends the waiting, not the drain. In the pod itself, with POD_NAME and POD_UID set, a pod that has replaced it under its name is not drained.',
    examples: [
      ['drain voice-agent-0', 'answers at once'],
      ['drain voice-agent-0 --wait', 'until its last call has ended, 5m at most'],
      ['drain voice-agent-0 --wait 30m && kubectl delete pod voice-agent-0', ''],
    ],
    exits: [4, 5, 7, 130],
  }).option('--wait [duration]', 'wait until the last call has ended (default: 5m, at most 24h)', parseWait);
  answerWith(command, cli, async (api) => {
    const [pod = ''] = command.args;
    const { wait, json } = command.opts<{ wait?: number | true; json?: true }>();
    if (wait !== undefined) {
      const waitMs = wait === true ? defaultWaitMs : wait;
      return waitForDrain({ api, cli, pod, waitMs, quiet: json === true });
    }
    const { body, nowMs } = await api.send<Drained>('/drain', {
      method: 'POST',
      body: { pod_name: pod, uid: ownUid(pod, cli.env) },
      has: 'active_calls',
    });
    return { document: body, text: `${clean(body.message)}\n${endsByItself(body, nowMs)}` };
  });
}

function parseWait(text: string): number {
  try {
    return duration(1, longestWaitMs)(text);
  } catch {
    throw new InvalidArgumentError(
      'It must be a duration like 30s or 5m, at most 24h; the pod comes first: drain POD --wait 5m.',
    );
  }
}

export function undrain(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('undrain').argument('<pod>', 'name of the pod'), {
    summary: 'end a drain now: the pod takes calls again',
    examples: [['undrain voice-agent-0', '']],
    exits: [4, 5],
  });
  answerWith(command, cli, async (api) => {
    const [pod = ''] = command.args;
    const { body } = await api.send<Undrained>('/undrain', {
      method: 'POST',
      body: { pod_name: pod, uid: ownUid(pod, cli.env) },
      has: 'pod_name',
    });
    return { document: body, text: `${clean(body.message)}\n` };
  });
}

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
  const watching = watchDrain(waiting, seen, startMs, AbortSignal.any([interrupted.signal, done.signal]));
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
      if (failure.code === 'pod_not_found' || failure.code === 'pod_replaced') return removedPod(pod);
      if (failure.exitCode !== exitCodes.unreachable || cli.clock.monotonic() >= deadlineMs) throw failure;
      if (!told && !quiet) cli.screen.err(`${failure.message} Trying again: the drain goes on.`);
      told = true;
    }
    await cli.clock.sleep(lookEveryMs, signal);
    if (signal.aborted) throw new Failure('interrupted', 'interrupted');
  }
}

/** A pod that was removed or replaced while it drained has no calls: they ended with it. */
function removedPod(pod_name: string): Drained {
  const message = `Pod ${pod_name} was removed; its calls have ended.`;
  return { success: true, pod_name, has_active_call: false, active_calls: 0, message };
}

/** Looks at the pod once a second and says how far it is. A look that fails says nothing. */
async function watchDrain(
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
