/** `smart-router calls`, `allocate` and `release`. */
import { type Command, Option } from 'commander';
import { type Cell, facts, table } from '../../terminal/table.js';
import { clean } from '../../terminal/text.js';
import type { Answer, RouterApi } from '../api.js';
import { answerWith, type Cli, describeOperator, type Outcome, wholeNumber } from '../cli.js';
import type { RouterEvent } from '../event-stream.js';
import { Failure } from '../failure.js';
import { age, byText, countdown, leaseCell, shownOf, span } from '../format.js';
import {
  type Allocated,
  type Call,
  poolIdOf,
  type Released,
  readAll,
  readStatus,
  type WaitingCall,
} from '../replies.js';
import { eventLine } from './events.js';

export function calls(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('calls').argument('[sid]', 'show only this one'), {
    summary: 'list live calls, oldest first, or show one, also after it has ended',
    about:
      'For an ended call it shows the kept events: its pod, when it ran, and why it ended. The exit code is then 4.',
    examples: [
      ['calls', ''],
      ['calls --pool gold --limit 20', 'the 20 oldest of one pool'],
      ['calls --waiting', 'the calls that wait for a pod, and why'],
      ['calls CA1234', 'one call with its pod, lease and fence, or how it ended'],
      ['calls --json | jq -r ".calls[].call_sid"', 'for a script'],
    ],
    exits: [4],
  })
    .option('--pool <pool>', 'only this pool: gold, or merchant:acme')
    .addOption(new Option('--waiting', 'the calls that wait for a pod instead').conflicts('pool'))
    .option('--limit <n>', 'show at most this many', wholeNumber(1, 10_000_000));
  answerWith(command, cli, (api) => {
    const [sid] = command.args;
    const { waiting, limit } = command.opts<{ waiting?: true; limit?: number }>();
    if (waiting && sid === undefined) return listWaiting(api, cli, limit);
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
  const columns = ['CALL', 'POD', 'POOL', 'MERCHANT', '>AGE', 'LEASE'];
  const total = shownOf(shown.length, body.length, 'call');
  return {
    document: { calls: shown, total: body.length },
    text: shown.length === 0 ? 'no live calls\n' : `${table(columns, rows, cli.output.paint)}\n${total}\n`,
  };
}

const reasons: Readonly<Record<string, string | undefined>> = {
  no_pods: 'no free pod',
  merchant_limit: 'max_calls of its merchant',
};

async function listWaiting(api: RouterApi, cli: Cli, limit: number | undefined): Promise<Outcome> {
  const { body, nowMs } = await readAll<WaitingCall>(api, 'waiting', undefined, (call) => call.call_sid);
  body.sort((a, b) => byText(a.waiting_since, b.waiting_since) || byText(a.call_sid, b.call_sid));
  const shown = body.slice(0, limit);
  const rows = shown.map((call): Cell[] => [
    call.call_sid,
    call.merchant_id || '-',
    call.position,
    age(call.waiting_since, nowMs),
    countdown(call.wait_expires_at, nowMs),
    reasons[call.reason] ?? call.reason,
  ]);
  const columns = ['CALL', 'MERCHANT', '>POSITION', '>WAITS', 'UNTIL', 'REASON'];
  const total = shownOf(shown.length, body.length, 'call');
  return {
    document: { waiting: shown, total: body.length },
    text: shown.length === 0 ? 'no calls wait\n' : `${table(columns, rows, cli.output.paint)}\n${total}\n`,
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
    cli.output.paint,
  );
  return { document: body, text };
}

export interface Timeline {
  call_sid: string;
  live: object | null;
  events: RouterEvent[];
  is_complete: boolean;
}

const endings: Readonly<Record<string, string | undefined>> = {
  call_released: 'released',
  call_recovered: 'ended by the router',
  call_lost: 'lost with its pod',
  no_pods: 'rejected: no pod was available',
  wait_abandoned: 'abandoned while it waited for a pod',
  wait_expired: 'expired while it waited for a pod',
};

/** Shows a call that has ended, from its events. `notLive` stays the failure, for exit code 4. */
async function endedCall(
  api: RouterApi,
  { output: { paint } }: Cli,
  sid: string,
  notLive: Failure,
): Promise<Outcome> {
  const { body, nowMs } = await api
    .send<Timeline>(`/calls/${encodeURIComponent(sid)}/timeline`, { has: 'events' })
    .catch((error: unknown) => {
      // No event of it is kept.
      if (error instanceof Failure && error.code === 'call_not_found') throw error;
      // The router is too busy to search.
      throw withSearch(notLive, sid);
    });
  const { events, is_complete: isComplete } = body;
  const last = events.findLast(({ type }) => Object.hasOwn(endings, type));
  const pod = events.findLast((event) => event.pod);
  const ended = last && `${endings[last.type]} ${age(last.at, nowMs)} ago`;
  const text = facts(
    [
      ['call', sid],
      ['pod', String(pod?.pod ?? '-')],
      ['pool', String(pod?.pool || '-')],
      ['began', isComplete ? (events[0]?.at ?? '-') : 'before the kept events'],
      ['ended', ended ? endCell(last, ended, isComplete ? events[0] : undefined) : '-'],
    ],
    paint,
  );
  return {
    document: body,
    text: `${text}\n${events.map((event) => `${eventLine(event, event.at, paint)}\n`).join('')}`,
    failure: new Failure(
      notLive.code,
      `call ${JSON.stringify(clean(sid))} is not live: ${events.at(-1)?.type === 'call_waiting' ? 'it waits for a pod' : ended ? `it was ${ended}` : 'its end is not among the kept events'}`,
    ),
  };
}

function endCell(last: RouterEvent, ended: string, first: RouterEvent | undefined): Cell {
  const lastedMs = first && first !== last ? Date.parse(last.at) - Date.parse(first.at) : Number.NaN;
  const after = Number.isNaN(lastedMs) ? '' : `, after ${span(lastedMs)}`;
  const why = typeof last.reason === 'string' && last.reason !== '' ? `: ${last.reason}` : '';
  return { text: `${ended}${after}${why}`, colour: last.type === 'call_released' ? undefined : 'red' };
}

function withSearch(notLive: Failure, sid: string): Failure {
  // Quoted only if the shell needs it.
  const name = /^[\w.:-]+$/.test(sid) ? sid : `'${clean(sid).replaceAll("'", `'\\''`)}'`;
  return new Failure(
    notLive.code,
    `${notLive.message}; \`smart-router events --call ${name}\` shows its kept events`,
    notLive.problems,
  );
}

export function allocate(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('allocate').argument('<sid>', "the provider's call id"), {
    summary: 'give a call a pod, or show the one it has',
    about:
      'The call keeps the pod until it is released or its lease expires: release what you allocate for a test.',
    examples: [
      ['allocate CA1234', ''],
      ['allocate CA1234 --merchant acme', "with this merchant's chain"],
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
        ['pod', `${body.pod_name}${body.was_existing ? ' (already allocated)' : ''}`],
        ['pool', body.source_pool],
        ['ws_url', body.ws_url],
        ['lease', countdown(body.lease_expires_at, nowMs)],
        ['fence', body.fence],
      ],
      cli.output.paint,
    );
    return { document: body, text };
  });
}

export function release(parent: Command, cli: Cli): void {
  const command = describeOperator(parent.command('release').argument('<sid>', "the provider's call id"), {
    summary: 'end a call; its pod is available again',
    examples: [
      ['release CA1234', ''],
      ['release CA1234 --fence 1763193600000001', 'only this allocation'],
    ],
    exits: [4, 5],
  }).option(
    '--fence <n>',
    'the fence from allocate: a later allocation is then not released',
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
    const { pod_name, released_to_pool, was_draining, was_waiting } = body;
    const where = was_waiting
      ? 'it was waiting for a pod, and has left the queue'
      : released_to_pool
        ? `pod ${pod_name} is available again in ${released_to_pool}`
        : `pod ${pod_name} gets no new calls: it is ${was_draining ? 'draining' : 'terminating or not ready'}`;
    return { document: body, text: `call ${clean(call_sid)} ended; ${clean(where)}\n` };
  });
}
