/** `smart-router allocate`: a pod for a call, by hand. */
import type { Command } from 'commander';
import { facts } from '../../terminal/table.js';
import { countdown } from '../ages.js';
import type { Allocated } from '../answers.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';

export function allocate(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('allocate').argument('<sid>', "the provider's call id"), {
    summary: 'give a call a pod, or show the one it has',
    about:
      'The call keeps the pod until it is released or its lease runs out: release what you allocate for a try.',
    examples: [
      ['allocate CA1234', ''],
      ['allocate CA1234 --merchant acme', "by this merchant's chain"],
      ['allocate CA1234 --json | jq -r .ws_url', 'only the address of the audio'],
    ],
    exits: [3],
  })
    .option('--merchant <id>', 'merchant of the call')
    .option('--provider <name>', 'telephony provider (default: twilio)')
    .option('--flow <name>', 'flow of the conversation (default: v2)')
    .option('--template <name>', 'template of the conversation');
  answerWith(command, cli, async (api) => {
    const { merchant, provider, flow, template } = command.opts<Record<string, string | undefined>>();
    const { body, nowMs } = await api.send<Allocated>('/allocate', {
      method: 'POST',
      body: { call_sid: command.args[0], merchant_id: merchant, provider, flow, template },
      has: 'pod_name',
    });
    const text = facts(
      [
        ['pod', `${body.pod_name}${body.was_existing ? ' (it had it already)' : ''}`],
        ['pool', body.source_pool],
        ['ws_url', body.ws_url],
        ['lease', countdown(body.lease_expires_at, nowMs)],
        ['fence', body.fence],
      ],
      cli.screen.paint,
    );
    return { document: body, text };
  });
}
