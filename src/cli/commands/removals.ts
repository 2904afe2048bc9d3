/** `smart-router removals`: pods whose removal the brake holds. */
import type { Command } from 'commander';
import { type Cell, table } from '../../terminal/table.js';
import type { Paint } from '../../terminal/text.js';
import { addGroup, answerWith, type Cli, describeOperator } from '../cli.js';
import { count } from '../format.js';
import type { Removals, RemovalsConfirmed } from '../replies.js';

export function removals(program: Command, cli: Cli): void {
  addGroup(program, cli, 'removals', 'show or confirm removals that the brake holds', [
    removalsList,
    removalsConfirm,
  ]);
}

function removalsList(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('list'), {
    summary: 'list the pods that the removal brake holds',
    about:
      'A list of the cluster that misses more than half of the pods, and more than three, is not believed at once: these pods take no new calls, keep the ones they have, and are removed after three such lists in a row or `removals confirm`.',
    examples: [
      ['removals list', ''],
      ['removals list --json | jq -r .held[]', 'for a script'],
    ],
  });
  answerWith(command, cli, async (api) => {
    const { body } = await api.send<Removals>('/removals', { has: 'held' });
    return { document: body, text: show(body, cli.screen.paint) };
  });
}

function show({ held, confirmed }: Removals, paint: Paint): string {
  if (held.length === 0) return 'the removal brake holds nothing\n';
  const isConfirmed = new Set(confirmed);
  const rows = held.map((pod): Cell[] => [
    pod,
    isConfirmed.has(pod) ? { text: 'confirmed', colour: 'yellow' } : { text: 'held', colour: 'red' },
  ]);
  return `${table([{ head: 'POD' }, { head: 'REMOVAL' }], rows, paint)}\n${count(held.length, 'pod')} held. Are they really gone? \`smart-router removals confirm\` removes them and ends their calls.\nOtherwise check POD_LABEL_SELECTOR and NAMESPACE, or STATIC_PODS.\n`;
}

function removalsConfirm(parent: Command, cli: Cli): void {
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
