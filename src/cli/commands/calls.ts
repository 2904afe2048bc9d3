/** `smart-router calls`: all live calls, or one, live or not. */
import type { Command } from 'commander';
import { type Cell, facts, table } from '../../terminal/table.js';
import { age, shownOf } from '../ages.js';
import type { Call } from '../answers.js';
import type { Answer, RouterApi } from '../api.js';
import { endedCall } from '../call-story.js';
import { answerWith, type Cli, describeOperator, type Outcome, wholeNumber } from '../cli.js';
import { Failure } from '../failure.js';
import { leaseCell } from '../lease-cell.js';
import { byText, poolIdOf, readAll, readStatus } from '../lists.js';

export function calls(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('calls').argument('[sid]', 'show only this one'), {
    summary: 'list live calls, oldest first, or show one, also when it has ended',
    about:
      'With a call that is not live any more it shows what the router keeps of it: which pod it had, when, and why it ended. The exit code is 4 all the same.',
    examples: [
      ['calls', ''],
      ['calls --pool gold --limit 20', 'the 20 oldest of one pool'],
      ['calls CA1234', 'one call with its pod, lease and fence; what became of it, if it has ended'],
      ['calls --json | jq -r ".calls[].call_sid"', 'for a script'],
    ],
    exits: [4],
  })
    .option('--pool <pool>', 'only this pool: gold, or merchant:acme')
    .option('--limit <n>', 'show at most so many', wholeNumber(1, 10_000_000));
  answerWith(command, cli, (api) => {
    const [sid] = command.args;
    return sid === undefined ? listCalls(api, cli, command.opts()) : showCall(api, cli, sid);
  });
}

async function listCalls(
  api: RouterApi,
  cli: Cli,
  { pool, limit }: { pool?: string; limit?: number },
): Promise<Outcome> {
  const wanted = pool === undefined ? undefined : poolIdOf(pool, (await readStatus(api)).body.pools);
  const { body, nowMs } = await readAll<Call>(api, 'calls', wanted, (call) => call.call_sid);
  body.sort((a, b) => byText(a.allocated_at, b.allocated_at) || byText(a.call_sid, b.call_sid));
  const shown = body.slice(0, limit);
  const rows = shown.map((call): Cell[] => [
    call.call_sid,
    call.pod_name,
    call.source_pool,
    call.merchant_id || '-',
    age(call.allocated_at, nowMs),
    leaseCell(call.lease_expires_at, nowMs),
  ]);
  const columns = [
    { head: 'CALL' },
    { head: 'POD' },
    { head: 'POOL' },
    { head: 'MERCHANT' },
    { head: 'AGE', align: 'right' },
    { head: 'LEASE' },
  ] as const;
  const total = shownOf(shown.length, body.length, 'call');
  return {
    document: { calls: shown, total: body.length },
    text: shown.length === 0 ? 'no live calls\n' : `${table(columns, rows, cli.screen.paint)}\n${total}\n`,
  };
}

async function showCall(api: RouterApi, cli: Cli, sid: string): Promise<Outcome> {
  let found: Answer<Call>;
  try {
    found = await api.send<Call>(`/calls/${encodeURIComponent(sid)}`, { has: 'call_sid' });
  } catch (error) {
    if (error instanceof Failure && error.code === 'call_not_found') return endedCall(api, cli, sid, error);
    throw error;
  }
  const { body, nowMs } = found;
  const renewed = body.renewed_at ? `${age(body.renewed_at, nowMs)} ago` : 'never';
  const text = facts(
    [
      ['call', body.call_sid],
      ['pod', body.pod_name],
      ['pool', body.source_pool],
      ['merchant', body.merchant_id || '-'],
      ['provider', `${body.provider}, flow ${body.flow}, template ${body.template}`],
      ['age', `${age(body.allocated_at, nowMs)} (since ${body.allocated_at})`],
      ['renewed', renewed],
      ['lease', leaseCell(body.lease_expires_at, nowMs)],
      ['fence', body.fence],
    ],
    cli.screen.paint,
  );
  return { document: body, text };
}
