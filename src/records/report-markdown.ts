/** The weekly report as Markdown. Traces and ids come from records: markup in them is escaped. */
import type { WeeklyReport, WorkflowReport } from './report.js';

const reasons: Record<string, string> = {
  dead_worker: 'worker died',
  timed_out: 'timed out',
  given_up: 'worker had no session',
  unclaimed: 'no claim',
  by_hand: 'by hand',
};

export function reportMarkdown(report: WeeklyReport): string {
  const { since, until, workflows } = report;
  const busy = workflows.filter(
    ({ records, held, lateFinishes }) => records + held + (lateFinishes?.records ?? 0) > 0,
  );
  return `${[
    `# Stuck records, ${day(since)} to ${day(until)}`,
    '',
    headline(report),
    '',
    '| workflow | recovered | week before | requeued | failed | held for a person | held now | late finishes |',
    '|---|---|---|---|---|---|---|---|',
    ...workflows.map(row),
    ...busy.flatMap(section),
  ].join('\n')}\n`;
}

function headline({ records, before, byHand, workflows }: WeeklyReport): string {
  if (workflows.length === 0) return 'No workflow has run yet.';
  const recovered = records === 0 ? 'No stuck record' : `**${count(records)}** recovered`;
  return `${recovered}${trend(records, before)}. Manual interventions: ${byHand}.`;
}

function trend(records: number, before: number): string {
  if (records === before) return ', as in the week before';
  const change =
    before === 0
      ? ''
      : ` (${records > before ? '+' : ''}${Math.round((100 * (records - before)) / before)} %)`;
  return `; the week before: ${before}${change}`;
}

function row(report: WorkflowReport): string {
  const { workflow, records, before, byOutcome, held, lateFinishes } = report;
  const of = (outcome: string) => byOutcome[outcome] ?? 0;
  const late = lateFinishes === null ? 'not counted' : lateFinishes.records;
  return `| ${cell(workflow)} | ${records} | ${before} | ${of('requeued')} | ${of('failed')} | ${of('held')} | ${held} | ${late} |`;
}

function section(report: WorkflowReport): string[] {
  const { workflow, byReason, byDay, longestStuck, repeatOffenders, lateFinishes } = report;
  const lines = ['', `## ${cell(workflow)}`, ''];
  const why = Object.entries(byReason).map(([reason, n]) => `${reasons[reason] ?? reason} ${n}`);
  if (why.length > 0) lines.push(`- By reason: ${why.join(', ')}`);
  if (byDay.length > 0) lines.push(`- By day: ${byDay.map((one) => `${one.day} ${one.records}`).join(', ')}`);
  if (longestStuck) {
    const { id, stuckSeconds, reason, worker, trace } = longestStuck;
    const from = worker ? `, worker ${cell(worker)}` : '';
    const last = trace ? `, last trace: ${cell(trace)}` : '';
    lines.push(
      `- Stuck longest: ${cell(id)}, ${age(stuckSeconds)}, ${reasons[reason] ?? reason}${from}${last}`,
    );
  }
  if (lateFinishes && lateFinishes.records > 0)
    lines.push(
      `- Late finishes: ${count(lateFinishes.records)}. The worker was alive; a longer \`timeout\` would have saved the work`,
    );
  if (repeatOffenders.length > 0)
    lines.push(
      '',
      '| reset repeatedly | times | workers | last reason | last outcome | last trace |',
      '|---|---|---|---|---|---|',
      ...repeatOffenders.map(
        ({ id, times, workers, reason, outcome, trace }) =>
          `| ${cell(id)} | ${times} | ${workers} | ${reasons[reason] ?? reason} | ${outcome} | ${cell(trace ?? '')} |`,
      ),
    );
  return lines;
}

const count = (records: number) => `${records} record${records === 1 ? '' : 's'}`;
const day = (time: string) => time.slice(0, 10);
const maxCellLength = 200;

/** One line, with markup escaped. */
function cell(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  const short = line.length > maxCellLength ? `${line.slice(0, maxCellLength - 1)}…` : line;
  return short.replace(/[\\`*_[\]<>|#!&]/g, (mark) => `\\${mark}`);
}

function age(seconds: number | null): string {
  if (seconds === null) return 'unknown age';
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}
