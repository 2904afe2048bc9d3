/** `smart-router release`: ends a call. */
import type { Command } from 'commander';
import { clean } from '../../terminal/text.js';
import type { Released } from '../answers.js';
import { answerWith, type Cli, describeOperator, wholeNumber } from '../cli.js';

export function release(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('release').argument('<sid>', "the provider's call id"), {
    summary: 'end a call; its pod is available again',
    examples: [
      ['release CA1234', ''],
      ['release CA1234 --fence 1763193600000001', 'only if it is still that allocation'],
    ],
    exits: [4, 5],
  }).option(
    '--fence <n>',
    'the fence that allocate gave: a later allocation is then left alone',
    wholeNumber(1, Number.MAX_SAFE_INTEGER),
  );
  answerWith(command, cli, async (api) => {
    const [call_sid = ''] = command.args;
    const { fence } = command.opts<{ fence?: number }>();
    const { body } = await api.send<Released>('/release', {
      method: 'POST',
      body: { call_sid, fence },
      has: 'pod_name',
    });
    const { pod_name, released_to_pool, was_draining } = body;
    const where = released_to_pool
      ? `pod ${pod_name} is available again in ${released_to_pool}`
      : `pod ${pod_name} takes no new calls: it is ${was_draining ? 'draining' : 'terminating or not ready'}`;
    return { document: body, text: `call ${clean(call_sid)} ended; ${clean(where)}\n` };
  });
}
