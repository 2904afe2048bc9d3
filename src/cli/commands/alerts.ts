/** `smart-router alerts`: what somebody should look at now, and where the runbook says what to do. */
import type { Command } from 'commander';
import { type Alert, alertLines } from '../alerts.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';

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
