/** `smart-router alerts`, and the alerts that `status` and `top` show. */
import type { Command } from 'commander';
import { type Colour, clean, type Paint } from '../../terminal/text.js';
import type { RouterApi } from '../api.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';
import { age, count } from '../format.js';
import { ifTold } from '../replies.js';

export function alerts(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('alerts'), {
    summary: 'show what is wrong now, and which page of the runbook helps',
    about:
      'The alerts of all replicas, the worst first, also while the store does not answer. Alerts are an answer, not a failure: the exit code is 0 with and without them.',
    examples: [
      ['alerts', ''],
      ['alerts --json | jq -r ".alerts[].runbook"', 'for a script'],
      ['alerts --json | jq -e ".alerts == []"', 'an exit code for a script'],
    ],
  });
  answerWith(command, cli, async (api) => {
    const { body, nowMs } = await api.send<{ alerts: Alert[] }>('/alerts', { has: 'alerts' });
    return {
      document: body,
      text: alertLines(body.alerts, nowMs, cli.screen.paint) || 'no alerts\n',
    };
  });
}

export interface Alert {
  name: string;
  severity: string;
  summary: string;
  since: string;
  workflow: string | null;
  /** Where the runbook says what to do; a router of before does not tell. */
  runbook?: string;
}

/** The worst first; null when the router does not tell. */
export async function alertsIfTold(api: RouterApi): Promise<readonly Alert[] | null> {
  const told = await ifTold<{ alerts: Alert[] }>(api, '/alerts', 'alerts');
  return Array.isArray(told?.alerts) ? told.alerts : null;
}

/** The word of the console: `page` (it goes to the person on call) would read like a place. */
export const severityWord = (severity: string) => (severity === 'page' ? 'critical' : clean(severity));

export function severityColour(severity: string): Colour {
  return severity === 'warning' ? 'yellow' : 'red';
}

/** Two lines each, because a sentence and a place beside each other fit no terminal. Empty without alerts. */
export function alertLines(alerts: readonly Alert[], nowMs: number, paint: Paint): string {
  if (alerts.length === 0) return '';
  const widthOf = (texts: readonly string[]) => Math.max(...texts.map((text) => text.length));
  const ages = alerts.map(({ since }) => age(since, nowMs));
  const widths = [widthOf(alerts.map(({ severity }) => severityWord(severity))), widthOf(ages)] as const;
  const lines = alerts.flatMap(({ severity, summary, name, workflow, runbook }, i) => [
    [
      paint(severityColour(severity), severityWord(severity).padEnd(widths[0])),
      `for ${ages[i]?.padEnd(widths[1])}`,
      clean(summary),
    ].join('  '),
    paint(
      'dim',
      `${' '.repeat(widths[0])}  ${clean(name)}${workflow ? ` of ${clean(workflow)}` : ''}${runbook ? `: see ${clean(runbook)}` : ''}`,
    ),
  ]);
  return `${paint('bold', count(alerts.length, 'alert'))}\n${lines.map((line) => `${line}\n`).join('')}`;
}
