/** `smart-router drain`: no new calls for a pod, and perhaps a wait for its last one. */
import { type Command, InvalidArgumentError } from 'commander';
import { clean } from '../../terminal/text.js';
import type { Drained } from '../answers.js';
import { answerWith, type Cli, describeOperator, duration, ownUid } from '../cli.js';
import { endsByItself, waitForDrain } from '../drain-wait.js';

const defaultWaitMs = 5 * 60_000;
const longestWaitMs = 24 * 3_600_000;

export function drain(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('drain').argument('<pod>', 'name of the pod'), {
    summary: 'give a pod no new calls; running ones go on',
    about:
      'The drain ends by itself after DRAINING_TTL of the router (or the wait and 30s, if that is longer). Ctrl-C ends the waiting, not the drain. In the pod itself, with POD_NAME and POD_UID set, a pod that has replaced it under its name is not drained.',
    examples: [
      ['drain voice-agent-0', 'answers at once'],
      ['drain voice-agent-0 --wait', 'until its last call has ended, 5m at most'],
      ['drain voice-agent-0 --wait 30m && kubectl delete pod voice-agent-0', ''],
    ],
    exits: [4, 5, 7, 130],
  }).option('--wait [duration]', 'wait until the last call has ended (default: 5m, at most 24h)', parseWait);
  answerWith(command, cli, async (api) => {
    const [pod = ''] = command.args;
    const { wait, json } = command.opts<{ wait?: number | true; json?: true }>();
    if (wait !== undefined) {
      const waitMs = wait === true ? defaultWaitMs : wait;
      return waitForDrain({ api, cli, pod, waitMs, quiet: json === true });
    }
    const { body, nowMs } = await api.send<Drained>('/drain', {
      method: 'POST',
      body: { pod_name: pod, uid: ownUid(pod, cli.env) },
      has: 'active_calls',
    });
    return { document: body, text: `${clean(body.message)}\n${endsByItself(body, nowMs)}` };
  });
}

function parseWait(text: string): number {
  try {
    return duration(1, longestWaitMs)(text);
  } catch {
    throw new InvalidArgumentError(
      'It must be a duration like 30s or 5m, at most 24h; the pod comes first: drain POD --wait 5m.',
    );
  }
}
