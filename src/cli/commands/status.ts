/** `smart-router status`: what is wrong first; then pools, leader, loops, store. */
import type { Command } from 'commander';
import { type Cell, facts, table, usageBar } from '../../terminal/table.js';
import { clean, type Paint } from '../../terminal/text.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';
import { Failure } from '../failure.js';
import { age, count } from '../format.js';
import { byText, readStatus, type Status } from '../replies.js';
import { type Alert, alertLines, alertsIfTold } from './alerts.js';

export function status(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('status'), {
    summary: 'show what is wrong now, pools, calls, leader, loops and store',
    examples: [
      ['status', ''],
      ['status --url https://router.example.com', 'another router'],
      ['status --json | jq .pools.gold', 'for a script'],
    ],
  });
  answerWith(command, cli, async (api) => {
    const [{ body, nowMs }, alerts] = await Promise.all([readStatus(api), alertsIfTold(api)]);
    const { paint } = cli.screen;
    const { url } = command.opts<{ url?: string }>();
    // What is to be typed next must reach the same router.
    const same = url === undefined ? '' : ` --url ${url}`;
    const warnings = body.tier_config_differs
      ? [
          `TIER_CONFIG of this router differs from the store, which counts: see \`smart-router tiers get${same}\``,
        ]
      : [];
    const { replicas_differ = [] }: Partial<Status> = body;
    if (replicas_differ.length > 0) warnings.push(replicasDiffer(replicas_differ));
    const down = `the store of the router at ${api.baseUrl} does not answer: ${clean(body.store_error ?? 'no reason given')}`;
    return {
      document: { ...body, alerts },
      text: [
        ...(alerts && alerts.length > 0 ? [alertLines(alerts, nowMs, paint)] : []),
        summary(body, alerts, api.baseUrl, same, paint),
        pools(body, paint),
        loops(body, nowMs, paint),
      ].join('\n'),
      warnings,
      failure: body.status === 'down' ? new Failure('store_unavailable', down) : undefined,
    };
  });
}

function summary(
  body: Status,
  alerts: readonly Alert[] | null,
  url: string,
  same: string,
  paint: Paint,
): string {
  const up = body.status === 'up';
  return facts(
    [
      ['router', `${url} (version ${body.version})`],
      ...calm(alerts),
      ['store', { text: body.status, colour: up ? 'green' : 'red' }],
      ['leader', leader(body)],
      ...election(body),
      ['calls', body.active_calls === null ? 'unknown' : `${body.active_calls} live`],
      ...unreadable(body),
      ...removals(body, same),
      ...records(body, same),
      ['tiers', `version ${body.tier_version}`],
    ],
    paint,
  );
}

/** One line where there is no block of them: silence could also mean that nobody looked. */
function calm(alerts: readonly Alert[] | null): [string, Cell][] {
  if (alerts === null) return [['alerts', { text: 'unknown: this router does not tell', colour: 'yellow' }]];
  return alerts.length === 0 ? [['alerts', { text: 'none', colour: 'green' }]] : [];
}

/** Only when something is wrong with it. A router of before does not tell. */
function election({ election }: Partial<Status>): [string, Cell][] {
  if (!election?.last_error) return [];
  return [['election', { text: `${election.lock}: ${election.last_error}`, colour: 'red' }]];
}

/** Pools whose key is of a wrong type. */
function unreadable({ pools }: Status): [string, Cell][] {
  const keys = Object.values(pools).flatMap(({ unreadable_key }) => unreadable_key ?? []);
  if (keys.length === 0) return [];
  return [
    ['unreadable', { text: `${keys.join(', ')}: of a wrong type; keep a copy (RENAME)`, colour: 'red' }],
  ];
}

/** Only when there are any: it is an alarm, not a number to get used to. A router of before does not tell. */
function removals({ removals_held = 0 }: Partial<Status>, same: string): [string, Cell][] {
  if (!removals_held) return [];
  const text = `${count(removals_held, 'pod')} held by the removal brake: see \`smart-router removals list${same}\``;
  return [['removals', { text, colour: 'red' }]];
}

/** A router of before does not tell, and one without a database has none. */
function records({ records: state }: Partial<Status>, same: string): [string, Cell][] {
  if (!state) return [];
  const stuck = state.workflows.reduce((sum, workflow) => sum + (workflow.stuck ?? 0), 0);
  const said = [
    `database ${state.database}`,
    count(state.workflows.length, 'workflow'),
    ...(stuck > 0 ? [`${stuck} stuck: see \`smart-router records stuck${same}\``] : []),
    ...(state.paused ? ['claiming is paused'] : []),
    ...(state.braked ? ['most workers fell silent at once'] : []),
    ...(state.error ? [state.error] : []),
  ];
  const colour = state.database === 'down' ? 'red' : said.length > 2 ? 'yellow' : undefined;
  return [['records', { text: said.join(', '), colour }]];
}

function leader({ is_leader, leader }: Status): Cell {
  if (is_leader) return `${leader ?? ''} (this router)`.trim();
  return leader ?? { text: 'not this router', colour: 'dim' };
}

function pools(body: Status, paint: Paint): string {
  const names = Object.keys(body.pools).sort(byText);
  if (names.length === 0) return body.status === 'up' ? 'no pools yet\n' : '';
  const rows = names.map((name): Cell[] => {
    const { type, assigned, available, active_calls, capacity } = body.pools[name] as Status['pools'][string];
    const percent = capacity > 0 ? Math.round((100 * active_calls) / capacity) : 0;
    const bar = `${usageBar(active_calls, capacity)} ${String(percent).padStart(3)}%`;
    const colour = assigned === 0 ? 'dim' : available === 0 ? 'red' : percent >= 80 ? 'yellow' : 'green';
    return [name, type, assigned, available, active_calls, capacity, { text: bar, colour }];
  });
  const columns = [
    { head: 'POOL' },
    { head: 'TYPE' },
    { head: 'ASSIGNED', align: 'right' },
    { head: 'AVAILABLE', align: 'right' },
    { head: 'ACTIVE', align: 'right' },
    { head: 'CAPACITY', align: 'right' },
    { head: 'USE' },
  ] as const;
  return table(columns, rows, paint);
}

function loops(body: Status, nowMs: number, paint: Paint): string {
  if (body.loops.length === 0) return 'no loops run here\n';
  const rows = body.loops.map((loop): Cell[] => {
    const last = age(loop.last_round_at, nowMs);
    const did = Object.entries(loop.counts)
      .filter(([, number]) => number !== 0)
      .map(([name, number]) => `${name} ${number}`)
      .join(', ');
    const error: Cell = loop.last_error ? { text: loop.last_error, colour: 'red' } : did || '-';
    return [
      loop.name,
      loop.running ? 'running' : { text: 'stopped', colour: 'yellow' },
      last === '-' ? 'never' : `${last} ago`,
      loop.rounds,
      { text: String(loop.crashes), colour: loop.crashes > 0 ? 'yellow' : undefined },
      error,
    ];
  });
  const columns = [
    { head: 'LOOP' },
    { head: 'STATE' },
    { head: 'LAST ROUND' },
    { head: 'ROUNDS', align: 'right' },
    { head: 'CRASHES', align: 'right' },
    { head: 'LAST ERROR, OR WHAT IT DID' },
  ] as const;
  return table(columns, rows, paint);
}

export function replicasDiffer(names: readonly string[]): string {
  return `POD_SOURCE, STATIC_PODS or TIER_CONFIG differ from this router's on ${names.map(clean).join(', ')}: give all replicas the same`;
}
