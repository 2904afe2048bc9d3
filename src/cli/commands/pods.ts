/** `smart-router pods`, `drain` and `undrain`. */
import { Argument, InvalidArgumentError, Option } from 'commander';
import { abortWith } from '../../clock.js';
import { formatDuration } from '../../config/durations.js';
import { type Cell, type Column, type Fact, facts } from '../../terminal/table.js';
import { type Colour, clean } from '../../terminal/text.js';
import { type GivenRouter, ownUid, routerCommand } from '../access.js';
import type { RouterApi } from '../api.js';
import type { Cli, Outcome } from '../cli.js';
import { Failure, toFailure } from '../failure.js';
import { age, byText, count, countdown, leaseCell, leaseColour, listOutcome, span } from '../format.js';
import { duration, limitOption, poolOption } from '../input.js';
import {
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

export const pods = routerCommand<Options>({
  name: 'pods',
  summary: 'list pods, or show one',
  about:
    'States: free (no calls), busy (at least one call), draining (finishes its calls, or terminating), blocked (not ready, or awaiting a report).',
  examples: [
    ['pods', ''],
    ['pods --pool gold --state free', 'pods that can take a call of this pool'],
    ['pods --state draining --json', 'for a script'],
    ['pods voice-agent-0', 'one pod with its calls'],
  ],
  exits: [4],
  args: [new Argument('[pod]', 'show only this one')],
  options: [
    poolOption,
    new Option('--state <state>', 'only pods in this state').choices(states),
    limitOption,
  ],
  run(given) {
    const [pod] = given.args;
    return pod === undefined ? listPods(given) : showPod(given.api, pod);
  },
});

async function listPods({ api, options }: GivenRouter<Options>): Promise<Outcome> {
  const { pool, state: wantedState, limit } = options;
  const { pools } = (await readStatus(api)).body;
  const wanted = pool === undefined ? undefined : poolIdOf(pool, pools);
  const { body, nowMs } = await readAll(api, 'pods', wanted);
  const all = body
    .map((pod) => ({ ...pod, state: stateOf(pod) }))
    .filter(({ state }) => wantedState === undefined || state === wantedState)
    .sort((a, b) => byText(a.tier, b.tier) || byText(a.pod_name, b.pod_name));
  return listOutcome('pods', all, limit, {
    noun: 'pod',
    empty: 'no pods',
    columns: podColumns(pools, nowMs),
  });
}

/** `top` shows them too. */
export function podColumns(pools: Readonly<Record<string, Pool>>, nowMs: number): readonly Column<Pod>[] {
  return [
    ['POD', (pod) => pod.pod_name],
    ['POOL', (pod) => pod.tier],
    ['STATE', (pod) => stateCell(stateOf(pod))],
    ['>CALLS', (pod) => `${pod.calls.length}/${callsPerPod(pools[pod.tier])}`],
    ['LEASE', (pod) => leaseCell(soonest(pod), nowMs)],
    ['CALL OR BLOCK', (pod) => note(pod, nowMs)],
  ];
}

const readPod = (api: RouterApi, name: string, signal?: AbortSignal) =>
  api.send<Pod>(`/pod/${encodeURIComponent(name)}`, 'pod_name', signal && { signal });

async function showPod(api: RouterApi, name: string): Promise<Outcome> {
  const { body, nowMs } = await readPod(api, name);
  const state = stateOf(body);
  const leases = body.leases.map(
    ({ call_sid, lease_expires_at }): Fact => [
      'call',
      {
        text: `${call_sid}, lease ${countdown(lease_expires_at, nowMs)}`,
        colour: leaseColour(lease_expires_at, nowMs),
      },
    ],
  );
  const text = facts([
    ['pod', body.pod_name],
    ['pool', body.tier],
    ['state', stateCell(state)],
    ['blocked by', body.blocked_by ? reason(body, nowMs) : undefined],
    ['uid', body.uid || undefined],
    ['calls', body.calls.length],
    ...leases,
  ]);
  return { document: { ...body, state }, text };
}

const stateColours: Readonly<Record<State, Colour>> = {
  free: 'green',
  busy: 'bold',
  draining: 'yellow',
  blocked: 'red',
};

const stateCell = (state: State): Cell => ({ text: state, colour: stateColours[state] });

export function stateOf(pod: Pod): State {
  if (pod.is_draining) return 'draining';
  if (pod.blocked_by) return 'blocked';
  return pod.calls.length > 0 ? 'busy' : 'free';
}

function callsPerPod(pool: Pool | undefined): string {
  return pool && pool.assigned > 0 ? String(pool.capacity / pool.assigned) : '?';
}

export function soonest(pod: Pod): string | undefined {
  return pod.leases.map(({ lease_expires_at }) => lease_expires_at).sort()[0];
}

function note(pod: Pod, nowMs: number): string {
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
const maxWaitMs = 24 * 3_600_000;

const podArgument = new Argument('<pod>', 'name of the pod');

export const drain = routerCommand<{ wait?: number | true }>({
  name: 'drain',
  summary: 'stop new calls to a pod; running calls continue',
  about:
    'The drain expires after DRAINING_TTL of the router (or after the wait and 30s, if that is longer). Ctrl-C ends the wait, not the drain. Inside the pod, with POD_NAME and POD_UID set, a successor with the same name is not drained.',
  examples: [
    ['drain voice-agent-0', 'returns at once'],
    ['drain voice-agent-0 --wait', 'until its last call has ended, at most 5m'],
    ['drain voice-agent-0 --wait 30m && kubectl delete pod voice-agent-0', ''],
  ],
  exits: [4, 5, 7, 130],
  args: [podArgument],
  options: [
    new Option(
      '--wait [duration]',
      'wait until the last call has ended (default: 5m, at most 24h)',
    ).argParser(parseWait),
  ],
  async run({ api, cli, args: [pod = ''], options: { wait, json } }) {
    const waitMs = wait === true ? defaultWaitMs : wait;
    if (waitMs !== undefined) return new DrainWait(api, cli, pod, waitMs, json === true).run();
    const body = { pod_name: pod, uid: ownUid(pod, cli.env) };
    const { body: drained, nowMs } = await api.send<Drained>('POST /drain', 'active_calls', { body });
    return { document: drained, text: `${clean(drained.message)}\n${expiryLine(drained, nowMs)}` };
  },
});

function parseWait(text: string): number {
  try {
    return duration(1, maxWaitMs)(text);
  } catch {
    throw new InvalidArgumentError(
      'It must be a duration like 30s or 5m, at most 24h, after the pod: drain POD --wait 5m.',
    );
  }
}

export const undrain = routerCommand({
  name: 'undrain',
  summary: 'end a drain: the pod gets calls again',
  examples: [['undrain voice-agent-0', '']],
  exits: [4, 5],
  args: [podArgument],
  async run({ api, cli, args: [pod = ''] }) {
    const body = { pod_name: pod, uid: ownUid(pod, cli.env) };
    const { body: undrained } = await api.send<Undrained>('POST /undrain', 'pod_name', { body });
    return { document: undrained, text: `${clean(undrained.message)}\n` };
  },
});

const pollIntervalMs = 1000;
/** Until the drain request has arrived: before it, the pod is not draining yet. */
const arrivalIntervalMs = 100;

/** A pod that was deleted has no expiry. */
type DrainResult = Omit<Drained, 'drain_expires_at'> & Partial<Drained>;

/**
 * Waits for the last call of a draining pod. The router holds the request until the last call has ended or the time is
 * up, so progress is read with other requests. If the router shuts down or the connection breaks, the rest of the wait
 * is requested again from any replica. Once the drain is acknowledged, only time, Ctrl-C or the last call end the wait. A pod
 * that is unknown then may have lost its data with the store: its calls count as live until it is known again and reports.
 */
class DrainWait {
  readonly #startMs: number;
  #calls: number | undefined;
  #drainingUntil: string | null = null;
  #isAcknowledged = false;
  #hasReported = false;
  #nowMs: number;

  /** `quiet`: no progress lines, for --json. */
  constructor(
    private readonly api: RouterApi,
    private readonly cli: Cli,
    private readonly pod: string,
    private readonly waitMs: number,
    private readonly quiet: boolean,
  ) {
    this.#startMs = cli.clock.monotonic();
    this.#nowMs = cli.clock.now();
  }

  async run(): Promise<Outcome> {
    const pod = clean(this.pod);
    const interrupted = new AbortController();
    const done = new AbortController();
    const interrupt = () => interrupted.abort();
    process.once('SIGINT', interrupt);
    abortWith(done, interrupted.signal);
    const watching = this.#watch(done.signal);
    try {
      const drained = await this.#request(interrupted.signal);
      const waited = this.#waited();
      if (drained.active_calls === 0) {
        const text = `Pod ${pod} is draining and has no calls (waited ${waited}).\n`;
        return { document: drained, text: `${text}${expiryLine(drained, this.#nowMs)}` };
      }
      const left = `${count(drained.active_calls, 'call')} still live on ${pod} after ${waited}`;
      const failure = new Failure('calls_still_live', `${left}. ${this.#continues()}`);
      return { document: drained, text: '', failure };
    } catch (error) {
      if (!interrupted.signal.aborted) throw error;
      const calls = this.#calls === undefined ? '' : ` with ${count(this.#calls, 'live call')}`;
      return {
        document: { pod_name: this.pod, active_calls: this.#calls ?? null },
        text: '',
        failure: new Failure('interrupted', `stopped waiting for ${pod}${calls}. ${this.#continues()}`),
      };
    } finally {
      process.off('SIGINT', interrupt);
      done.abort();
      await watching;
    }
  }

  #waited(): string {
    return span(this.cli.clock.monotonic() - this.#startMs);
  }

  #continues(): string {
    const left = this.#drainingUntil ? ` (${countdown(this.#drainingUntil, this.#nowMs)})` : '';
    const name = clean(this.pod);
    return `The drain continues${left}: \`smart-router drain ${name} --wait\` waits again, \`smart-router undrain ${name}\` ends it.`;
  }

  async #request(signal: AbortSignal): Promise<DrainResult> {
    const { api, cli, pod } = this;
    const deadlineMs = this.#startMs + this.waitMs;
    let isReported = false;
    let unknown: Failure | undefined;
    for (;;) {
      const leftMs = Math.max(1, Math.ceil(deadlineMs - cli.clock.monotonic()));
      try {
        const { body, nowMs } = await api.send<Drained>('POST /drain', 'active_calls', {
          body: { pod_name: pod, uid: ownUid(pod, cli.env), wait: `${leftMs}ms` },
          timeoutMs: leftMs + api.timeoutMs,
          signal,
        });
        this.#isAcknowledged = true;
        this.#calls = body.active_calls;
        this.#nowMs = nowMs;
        const isOver = cli.clock.monotonic() >= deadlineMs;
        const isTrusted = body.active_calls > 0 || !unknown || this.#hasReported;
        if (isTrusted && (body.active_calls === 0 || isOver)) return body;
        if (isOver && unknown) throw unknown;
      } catch (error) {
        const failure = toFailure(error);
        if (signal.aborted || !this.#isAcknowledged) throw failure;
        if (failure.code === 'pod_not_found') {
          unknown = failure;
          this.#hasReported = false;
        }
        if (failure.code === 'pod_replaced') {
          const message = `Pod ${pod} was removed; its calls have ended.`;
          return { success: true, pod_name: pod, has_active_call: false, active_calls: 0, message };
        }
        const mayChange = failure.exitCode === 6 || failure === unknown;
        if (!mayChange || cli.clock.monotonic() >= deadlineMs) throw failure;
        if (!isReported && !this.quiet) cli.output.err(`${failure.message} Retrying; the drain continues.`);
        isReported = true;
      }
      await cli.clock.sleep(pollIntervalMs, signal);
      if (signal.aborted) throw new Failure('interrupted', 'interrupted');
    }
  }

  /** Reads the pod once a second and shows its calls. Failed reads are ignored: the drain request reports them. */
  async #watch(signal: AbortSignal): Promise<void> {
    const { clock, output } = this.cli;
    let shown: number | undefined;
    await clock.sleep(arrivalIntervalMs, signal);
    while (!signal.aborted) {
      try {
        const { body, nowMs } = await readPod(this.api, this.pod, signal);
        this.#calls = body.calls.length;
        this.#drainingUntil = body.draining_until;
        this.#isAcknowledged ||= body.is_draining || body.draining_until !== null;
        this.#hasReported = body.last_report_at !== null;
        this.#nowMs = nowMs;
      } catch {
        // Reported by the drain request.
      }
      if (signal.aborted) return;
      if (this.#isAcknowledged && this.#calls !== undefined) {
        const left = `draining ${clean(this.pod)}: ${count(this.#calls, 'call')} left`;
        if (output.showsProgress) output.progress(`${left}, ${this.#waited()} of ${span(this.waitMs)}`);
        else if (!this.quiet && this.#calls !== shown) output.err(left);
        shown = this.#calls;
      }
      await clock.sleep(this.#isAcknowledged ? pollIntervalMs : arrivalIntervalMs, signal);
    }
  }
}

function expiryLine({ drain_expires_at: at }: DrainResult, nowMs: number): string {
  if (at === undefined) return '';
  const left = formatDuration(Math.floor(Math.max(0, Date.parse(at) - nowMs) / 1000) * 1000);
  return `The drain expires at ${at} (in ${left}).\n`;
}
