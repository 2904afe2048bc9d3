/** `smart-router records report`: what was brought back in a week, or in any other time, as Markdown. */
import { type Command, InvalidArgumentError } from 'commander';
import type { Cli } from '../cli.js';
import { Failure } from '../failure.js';
import { answerRecords, describeRecords } from '../records.js';

export function recordsReport(parent: Command, cli: Cli): void {
  const command = describeRecords(parent.command('report'), {
    summary: 'report what was brought back, why, and what came back again and again, as Markdown',
    about:
      'Without options it is about the last seven days, up to now. A router sends the same for every full week. A time is a day or a moment like 2026-11-09 or 2026-11-09T08:30Z, in UTC unless it names another zone. Resets are kept for 90 days.',
    examples: [
      ['records report', 'the last seven days'],
      ['records report --since 2026-11-09 --until 2026-11-16', 'one week, Monday to Monday'],
      ['records report --json | jq .byHand', 'how often a person had to step in'],
    ],
  })
    .option('--since <time>', 'from here on (default: seven days before --until)', parseTime)
    .option('--until <time>', 'up to here (default: now)', parseTime);
  answerRecords(command, cli, async ({ pool }) => {
    const { since, until } = command.opts<{ since?: Date; until?: Date }>();
    if (since && until && since >= until) throw new Failure('usage', '--since must be before --until');
    const { assertMigrated } = await import('../../records/migrate.js');
    const { weeklyReport } = await import('../../records/report.js');
    const { reportMarkdown } = await import('../../records/report-markdown.js');
    await assertMigrated(pool);
    const report = await weeklyReport(pool, { ...(since && { since }), ...(until && { until }) });
    return { document: report, text: reportMarkdown(report) };
  });
}

/** `new Date` alone takes the 30th of February, and reads what names no zone by the clock on the wall. */
function parseTime(text: string): Date {
  const parts = /^(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(Z|[+-]\d\d:\d\d)?)?$/i.exec(text);
  const [, day = '', time = '00:00', zone = 'Z'] = parts ?? [];
  const midnight = new Date(`${day}T00:00Z`);
  const moment = new Date(`${day}T${time}${zone.toUpperCase()}`);
  const isDay = !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
  if (parts && isDay && !Number.isNaN(moment.getTime())) return moment;
  throw new InvalidArgumentError('It must be a time like 2026-11-09 or 2026-11-09T08:30Z.');
}
