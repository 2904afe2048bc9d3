/** `smart-router pods`: all pods, or one. */
import { type Command, Option } from 'commander';
import { type Cell, facts, table } from '../../terminal/table.js';
import type { Colour } from '../../terminal/text.js';
import { age, countdown, shownOf } from '../ages.js';
import type { Pod, Pool } from '../answers.js';
import type { RouterApi } from '../api.js';
import { answerWith, type Cli, describeOperator, type Outcome, wholeNumber } from '../cli.js';
import { leaseCell, leaseColour } from '../lease-cell.js';
import { byText, poolIdOf, readAll, readStatus } from '../lists.js';

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
