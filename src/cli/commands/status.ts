/** `smart-router status`: alerts first, then pools, leader, loops and store. */
import { sharedVariables } from '../../config/fields.js';
import { type Cell, facts, table, usageBar } from '../../terminal/table.js';
import { clean } from '../../terminal/text.js';
import { routerCommand } from '../access.js';
import { Failure } from '../failure.js';
import { age, byText, count, span } from '../format.js';
import { type Alert, readStatus, type Status } from '../replies.js';
import { alertLines, readAlerts } from './alerts.js';

export const status = routerCommand({
  name: 'status',
  summary: 'show alerts, pools, calls, leader, loops and store',
  examples: [
    ['status', ''],
    ['status --url https://router.example.com', 'another router'],
    ['status --json | jq .pools.gold', 'for a script'],
  ],
  async run({ api, options: { url } }) {
    const [{ body, nowMs }, alerts] = await Promise.all([readStatus(api), readAlerts(api)]);
    // Suggested commands must reach the same router.
    const urlOption = url === undefined ? '' : ` --url ${url}`;
    const warnings: string[] = [];
    if (body.tier_config_differs)
      warnings.push(
        `TIER_CONFIG of this router differs from the store; the store applies: see \`smart-router tiers get${urlOption}\``,
      );
    if (body.replicas_differ.length > 0) warnings.push(replicasDiffer(body.replicas_differ));
    return {
      document: { ...body, alerts },
      text: [
        ...(alerts && alerts.length > 0 ? [alertLines(alerts, nowMs)] : []),
        summary(body, alerts, api.baseUrl, urlOption),
        pools(body),
        loops(body, nowMs),
      ].join('\n'),
      warnings,
      failure: storeFailure(api.baseUrl, body.status, `: ${clean(body.store_error ?? 'no reason given')}`),
    };
  },
});

/** There is output, but the router cannot serve calls. */
export function storeFailure(url: string, status: Status['status'], reason = ''): Failure | undefined {
  if (status === 'up') return undefined;
  return new Failure('store_unavailable', `the store of the router at ${url} is unreachable${reason}`);
}

function summary(body: Status, alerts: readonly Alert[] | null, url: string, urlOption: string): string {
  const unreadable = Object.values(body.pools).flatMap(({ unreadable_key }) => unreadable_key ?? []);
  const held = body.removals_held ?? 0;
  const electionError = body.election?.last_error;
  const removals = `\`smart-router removals list${urlOption}\``;
  return facts([
    ['router', `${url} (version ${body.version})`],
    ['alerts', noAlerts(alerts)],
    ['store', { text: body.status, colour: body.status === 'up' ? 'green' : 'red' }],
    ['leader', leader(body)],
    ['election', electionError ? red(`${body.election.lock}: ${electionError}`) : undefined],
    ['calls', callsText(body)],
    [
      'unreadable',
      unreadable.length > 0 && red(`${unreadable.join(', ')}: wrong type; keep a copy (RENAME)`),
    ],
    ['removals', held > 0 && red(`${count(held, 'pod')} held by the removal brake: see ${removals}`)],
    ['records', records(body, urlOption)],
    ['tiers', `version ${body.tier_version}`],
  ]);
}

function callsText({ active_calls, waiting_calls, oldest_wait_seconds }: Status): string {
  if (active_calls === null) return 'unknown';
  if (!waiting_calls) return `${active_calls} live`;
  return `${active_calls} live, ${waiting_calls} waiting, the oldest for ${span((oldest_wait_seconds ?? 0) * 1000)}`;
}

const red = (text: string): Cell => ({ text, colour: 'red' });

/** Says "none": a missing line could also mean that alerts were not read. */
function noAlerts(alerts: readonly Alert[] | null): Cell | undefined {
  if (alerts === null) return { text: 'unknown: the router did not answer', colour: 'yellow' };
  return alerts.length === 0 ? { text: 'none', colour: 'green' } : undefined;
}

function records({ records: state }: Status, urlOption: string): Cell | undefined {
  if (!state) return undefined;
  const stuck = state.workflows.reduce((sum, workflow) => sum + (workflow.stuck ?? 0), 0);
  const parts = [
    `database ${state.database}`,
    count(state.workflows.length, 'workflow'),
    ...(stuck > 0 ? [`${stuck} stuck: see \`smart-router records stuck${urlOption}\``] : []),
    ...(state.paused ? ['claiming is paused'] : []),
    ...(state.braked ? ['most workers missed their heartbeats'] : []),
    ...(state.error ? [state.error] : []),
  ];
  const colour = state.database === 'down' ? 'red' : parts.length > 2 ? 'yellow' : undefined;
  return { text: parts.join(', '), colour };
}

function leader({ is_leader, leader }: Status): Cell {
  if (is_leader) return `${leader ?? ''} (this router)`.trim();
  return leader ?? { text: 'not this router', colour: 'dim' };
}

function pools(body: Status): string {
  const names = Object.keys(body.pools).sort(byText);
  if (names.length === 0) return body.status === 'up' ? 'no pools yet\n' : '';
  const rows = names.map((name): Cell[] => {
    const { type, assigned, available, active_calls, capacity } = body.pools[name] as Status['pools'][string];
    const percent = capacity > 0 ? Math.round((100 * active_calls) / capacity) : 0;
    const bar = `${usageBar(active_calls, capacity)} ${String(percent).padStart(3)}%`;
    const colour = assigned === 0 ? 'dim' : available === 0 ? 'red' : percent >= 80 ? 'yellow' : 'green';
    return [name, type, assigned, available, active_calls, capacity, { text: bar, colour }];
  });
  const columns = ['POOL', 'TYPE', '>ASSIGNED', '>AVAILABLE', '>ACTIVE', '>CAPACITY', 'USE'];
  return table(columns, rows);
}

function loops(body: Status, nowMs: number): string {
  if (body.loops.length === 0) return 'no loops run on this router\n';
  const rows = body.loops.map((loop): Cell[] => {
    const last = age(loop.last_round_at, nowMs);
    const counts = Object.entries(loop.counts)
      .filter(([, number]) => number !== 0)
      .map(([name, number]) => `${name} ${number}`)
      .join(', ');
    const error: Cell = loop.last_error ? { text: loop.last_error, colour: 'red' } : counts || '-';
    return [
      loop.name,
      loop.running ? 'running' : { text: 'stopped', colour: 'yellow' },
      last === '-' ? 'never' : `${last} ago`,
      loop.rounds,
      { text: String(loop.crashes), colour: loop.crashes > 0 ? 'yellow' : undefined },
      error,
    ];
  });
  const columns = ['LOOP', 'STATE', 'LAST ROUND', '>ROUNDS', '>CRASHES', 'LAST ERROR OR COUNTS'];
  return table(columns, rows);
}

export function replicasDiffer(names: readonly string[]): string {
  return `${sharedVariables} differ on ${names.map(clean).join(', ')}: set the same values on all replicas`;
}
