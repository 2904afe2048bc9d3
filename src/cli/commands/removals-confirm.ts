/** `smart-router removals confirm`: an operator's word that the held pods are gone. */
import type { Command } from 'commander';
import { count } from '../ages.js';
import type { RemovalsConfirmed } from '../answers.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';

export function removalsConfirm(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('confirm'), {
    summary: 'remove the pods that the removal brake holds, and end their calls',
    about:
      'Asks nothing: look at `removals list` first. Holds for the pods that are held now; one that comes back before the leader has acted stays.',
    examples: [['removals confirm', '']],
    exits: [4],
  });
  answerWith(command, cli, async (api) => {
    const { body } = await api.send<RemovalsConfirmed>('/removals/confirm', {
      method: 'POST',
      has: 'confirmed',
    });
    return {
      document: body,
      text: `${count(body.confirmed, 'removal')} confirmed: the leader removes the pods in its next round\n`,
    };
  });
}
