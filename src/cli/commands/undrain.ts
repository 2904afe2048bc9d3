/** `smart-router undrain`: ends a drain. */
import type { Command } from 'commander';
import { clean } from '../../terminal/text.js';
import type { Undrained } from '../answers.js';
import { answerWith, type Cli, describeOperator, ownUid } from '../cli.js';

export function undrain(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('undrain').argument('<pod>', 'name of the pod'), {
    summary: 'end a drain now: the pod takes calls again',
    examples: [['undrain voice-agent-0', '']],
    exits: [4, 5],
  });
  answerWith(command, cli, async (api) => {
    const [pod = ''] = command.args;
    const { body } = await api.send<Undrained>('/undrain', {
      method: 'POST',
      body: { pod_name: pod, uid: ownUid(pod, cli.env) },
      has: 'pod_name',
    });
    return { document: body, text: `${clean(body.message)}\n` };
  });
}
