/** `smart-router removals`: pods whose removal the brake holds. */
import { type Cell, type Column, tableOf } from '../../terminal/table.js';
import { routerCommand } from '../access.js';
import { group } from '../cli.js';
import { count } from '../format.js';
import type { Removals, RemovalsConfirmed } from '../replies.js';

const list = routerCommand({
  name: 'list',
  summary: 'list the pods that the removal brake holds',
  about:
    'If a list of pods from the cluster misses more than half of the known pods, and more than three, the missing pods are held: they keep their calls and get no new ones. They are removed after three such lists in a row, or by `removals confirm`.',
  examples: [
    ['removals list', ''],
    ['removals list --json | jq -r .held[]', 'for a script'],
  ],
  async run({ api }) {
    const { body } = await api.send<Removals>('/removals', 'held');
    return { document: body, text: show(body) };
  },
});

function show({ held, confirmed }: Removals): string {
  if (held.length === 0) return 'the removal brake holds no pods\n';
  const isConfirmed = new Set(confirmed);
  const stateOf = (pod: string): Cell =>
    isConfirmed.has(pod) ? { text: 'confirmed', colour: 'yellow' } : { text: 'held', colour: 'red' };
  const columns: Column<string>[] = [
    ['POD', (pod) => pod],
    ['REMOVAL', stateOf],
  ];
  return `${tableOf(held, columns)}
${count(held.length, 'pod')} held. If the pods are deleted, run \`smart-router removals confirm\`: it removes them and ends their calls.
Otherwise check POD_LABEL_SELECTOR and NAMESPACE, or STATIC_PODS.
`;
}

const confirm = routerCommand({
  name: 'confirm',
  summary: 'remove the pods that the removal brake holds, and end their calls',
  about:
    'Does not ask: check `removals list` first. Applies to the pods held now; a pod that reappears before the leader acts stays.',
  examples: [['removals confirm', '']],
  exits: [4],
  async run({ api }) {
    const { body } = await api.send<RemovalsConfirmed>('POST /removals/confirm', 'confirmed');
    const text = `${count(body.confirmed, 'removal')} confirmed; the leader removes the pods in its next round\n`;
    return { document: body, text };
  },
});

export const removals = group('removals', 'show or confirm removals that the brake holds', [list, confirm]);
