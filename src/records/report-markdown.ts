/** A report for people. Traces and ids come from records, so whatever is in them stays inside its table cell. */
import type { WeeklyReport, WorkflowReport } from './report.js';

const reasons: Record<string, string> = {
  dead_worker: 'its worker died',
  timed_out: 'it took too long',
  given_up: 'its worker had no session',
  unclaimed: 'nobody of ours held it',
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
    '| workflow | brought back | week before | requeued | failed | held for a person | waiting for one now | late finishes |',
    '|---|---|---|---|---|---|---|---|',
    ...workflows.map(row),
    ...busy.flatMap(section),
  ].join('\n')}\n`;
}

function headline({ records, before, byHand, workflows }: WeeklyReport): string {
  if (workflows.length === 0) return 'No workflow is known here yet.';
  const brought =
    records === 0 ? 'No record had to be brought back' : `**${count(records)}** were brought back`;
  return `${brought}${trend(records, before)}. Manual interventions: ${byHand}.`;
}

function trend(records: number, before: number): string {
  if (records === before)
    return records === 0 ? ', as in the week before' : ', as many as in the week before';
  const change =
    before === 0
      ? ''
      : ` (${records > before ? '+' : ''}${Math.round((100 * (records - before)) / before)} %)`;
  return `; the week before it was ${before}${change}`;
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
  if (why.length > 0) lines.push(`- Why: ${why.join(', ')}`);
  if (byDay.length > 0) lines.push(`- By day: ${byDay.map((one) => `${one.day} ${one.records}`).join(', ')}`);
  if (longestStuck) {
    const { id, stuckSeconds, reason, worker, trace } = longestStuck;
    const from = worker ? `, held by ${cell(worker)}` : '';
    const doing = trace ? `, last seen: ${cell(trace)}` : '';
    lines.push(
      `- Stuck longest: ${cell(id)}, ${age(stuckSeconds)}, because ${reasons[reason] ?? reason}${from}${doing}`,
    );
  }
  if (lateFinishes && lateFinishes.records > 0)
    lines.push(
      `- ${count(lateFinishes.records)} finished after they had been taken away: the worker lived, so a longer timeout or heartbeat bound would have saved the work`,
    );
  if (repeatOffenders.length > 0)
    lines.push(
      '',
      '| came back again and again | times | workers | last reason | last outcome | what it was doing |',
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
const longestCell = 200;

/** On one line, and nothing in it is markup. */
function cell(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  const short = line.length > longestCell ? `${line.slice(0, longestCell - 1)}…` : line;
  return short.replace(/[\\`*_[\]<>|#!&]/g, (mark) => `\\${mark}`);
}

function age(seconds: number | null): string {
  if (seconds === null) return 'for an unknown time';
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}
