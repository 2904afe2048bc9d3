/** The results as lines and as Markdown tables for docs/guarantees.md. */
import type { Round } from './settings.js';

const seconds = (ms: number) => (ms / 1000).toFixed(1);
const sum = (rounds: readonly Round[], of: (round: Round) => number) =>
  rounds.reduce((total, round) => total + of(round), 0);
const max = (rounds: readonly Round[], of: (round: Round) => number) => Math.max(0, ...rounds.map(of));
const refusedOf = ({ refused }: Round) => Object.values(refused).reduce((total, n) => total + n, 0);

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return ((sorted[(sorted.length - 1) >> 1] ?? 0) + (sorted[sorted.length >> 1] ?? 0)) / 2;
}

export function roundLine(round: Round): string {
  const { setting, number, fault, calls, doubles, longestOverlapMs, lostReleases, dropped } = round;
  const codes = Object.entries(round.refused).map(([code, n]) => `${n} ${code}`);
  return [
    `${setting} ${number} ${fault}: new master after ${seconds(round.newMasterMs)} s`,
    `full capacity after ${seconds(round.fullCapacityMs)} s`,
    `${calls} calls`,
    `${doubles} double allocations${doubles > 0 ? ` (longest ${seconds(longestOverlapMs)} s)` : ''}`,
    `${lostReleases} lost releases${lostReleases > 0 ? ` (free after ${seconds(round.lostReleaseFreeMs)} s)` : ''}`,
    `${refusedOf(round)} refused${codes.length > 0 ? ` (${codes.join(', ')})` : ''}`,
    `${dropped} dropped`,
  ].join(', ');
}

const columns = [
  'rounds',
  'calls',
  'double allocations',
  'longest overlap',
  'lost releases',
  'free after, worst',
  'refused calls',
  'full capacity after, median',
  'worst',
];

function cells(rounds: readonly Round[]): (string | number)[] {
  const doubles = sum(rounds, (round) => round.doubles);
  const lost = sum(rounds, (round) => round.lostReleases);
  return [
    rounds.length,
    sum(rounds, (round) => round.calls),
    doubles,
    doubles > 0 ? `${seconds(max(rounds, (round) => round.longestOverlapMs))} s` : '-',
    lost,
    lost > 0 ? `${seconds(max(rounds, (round) => round.lostReleaseFreeMs))} s` : '-',
    sum(rounds, refusedOf),
    `${seconds(median(rounds.map((round) => round.fullCapacityMs)))} s`,
    `${seconds(max(rounds, (round) => round.fullCapacityMs))} s`,
  ];
}

function markdown(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (values: readonly (string | number)[]) => `| ${values.join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line), ''].join('\n');
}

/** One table by setting, one by setting and fault. */
export function tables(rounds: readonly Round[]): string {
  const settings = [...new Set(rounds.map(({ setting }) => setting))];
  const faults = [...new Set(rounds.map(({ fault }) => fault))].sort();
  const bySetting = settings.map((name) => [
    `\`${name}\``,
    ...cells(rounds.filter(({ setting }) => setting === name)),
  ]);
  const byFault = settings.flatMap((name) =>
    faults.flatMap((kind) => {
      const some = rounds.filter(({ setting, fault }) => setting === name && fault === kind);
      return some.length > 0 ? [[`\`${name}\``, kind, ...cells(some)]] : [];
    }),
  );
  return `${markdown(['setting', ...columns], bySetting)}\n${markdown(['setting', 'fault', ...columns], byFault)}`;
}
