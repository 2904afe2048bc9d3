/** `smart-router alerts`, and the alerts that `status` and `top` show. */
import { type Colour, clean, paint } from '../../terminal/text.js';
import { routerCommand } from '../access.js';
import type { RouterApi } from '../api.js';
import { age, count } from '../format.js';
import { type Alert, type AlertList, readOptional } from '../replies.js';

export const alerts = routerCommand({
  name: 'alerts',
  summary: 'show current alerts and their runbook pages',
  about:
    'The alerts of all replicas, most severe first, also while the store is unreachable. The exit code is 0 with and without alerts.',
  examples: [
    ['alerts', ''],
    ['alerts --json | jq -r ".alerts[].runbook"', 'for a script'],
    ['alerts --json | jq -e ".alerts == []"', 'an exit code for a script'],
  ],
  async run({ api }) {
    const { body, nowMs } = await api.send<AlertList>('/alerts', 'alerts');
    return { document: body, text: alertLines(body.alerts, nowMs) || 'no alerts\n' };
  },
});

/** Most severe first; null if they cannot be read. */
export async function readAlerts(api: RouterApi): Promise<readonly Alert[] | null> {
  const reply = await readOptional<AlertList>(api, '/alerts', 'alerts');
  return Array.isArray(reply?.alerts) ? reply.alerts : null;
}

/** The console's word too: `page` means that it pages the person on call. */
export const severityWord = (severity: string) => (severity === 'page' ? 'critical' : clean(severity));

export function severityColour(severity: string): Colour {
  return severity === 'warning' ? 'yellow' : 'red';
}

/** Two lines per alert: summary and address do not fit side by side. Empty without alerts. */
export function alertLines(alerts: readonly Alert[], nowMs: number): string {
  if (alerts.length === 0) return '';
  const widthOf = (texts: readonly string[]) => Math.max(...texts.map((text) => text.length));
  const ages = alerts.map(({ since }) => age(since, nowMs));
  const widths = [widthOf(alerts.map(({ severity }) => severityWord(severity))), widthOf(ages)] as const;
  const lines = alerts.flatMap(({ severity, summary, name, workflow, runbook }, i) => {
    const word = paint(severityColour(severity), severityWord(severity).padEnd(widths[0]));
    const source = `${clean(name)}${workflow ? ` of ${clean(workflow)}` : ''}`;
    return [
      `${word}  for ${ages[i]?.padEnd(widths[1])}  ${clean(summary)}`,
      paint('dim', `${' '.repeat(widths[0])}  ${source}: see ${clean(runbook)}`),
    ];
  });
  return `${paint('bold', count(alerts.length, 'alert'))}\n${lines.map((line) => `${line}\n`).join('')}`;
}
