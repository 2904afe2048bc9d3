/** `smart-router removals list`: pods that the removal brake holds. */
import type { Command } from 'commander';
import { type Cell, table } from '../../terminal/table.js';
import type { Paint } from '../../terminal/text.js';
import { count } from '../ages.js';
import type { Removals } from '../answers.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';

export function removalsList(parent: Command, cli: Cli): void {
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
