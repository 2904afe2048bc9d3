/** `smart-router calls`, `allocate` and `release`. */
import { Argument, Option } from 'commander';
import { type Cell, facts } from '../../terminal/table.js';
import { clean } from '../../terminal/text.js';
import { type GivenRouter, routerCommand } from '../access.js';
import type { Answer, RouterApi } from '../api.js';
import type { Outcome } from '../cli.js';
import { Failure } from '../failure.js';
import { age, byText, countdown, leaseCell, listOutcome, span } from '../format.js';
import { limitOption, poolOption, wholeNumber } from '../input.js';
import {
  type Allocated,
  type Call,
  poolIdOf,
  type Released,
  type RouterEvent,
  readAll,
  readStatus,
  type Timeline,
} from '../replies.js';
import { eventLines } from './events.js';

interface Options {
  pool?: string;
  waiting?: true;
  limit?: number;
}

export const calls = routerCommand<Options>({
  name: 'calls',
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
  args: [new Argument('[sid]', 'show only this one')],
  options: [
    poolOption,
    new Option('--waiting', 'the calls that wait for a pod instead').conflicts('pool'),
    limitOption,
  ],
  run(given) {
    const [sid] = given.args;
    if (sid !== undefined) return showCall(given.api, sid);
    return given.options.waiting ? listWaiting(given) : listCalls(given);
  },
});

async function listCalls({ api, options }: GivenRouter<Options>): Promise<Outcome> {
  const { pool, limit } = options;
  const wanted = pool === undefined ? undefined : poolIdOf(pool, (await readStatus(api)).body.pools);
  const { body, nowMs } = await readAll(api, 'calls', wanted);
  body.sort((a, b) => byText(a.allocated_at, b.allocated_at) || a.fence - b.fence);
  return listOutcome('calls', body, limit, {
    noun: 'call',
    empty: 'no live calls',
    columns: [
      ['CALL', (call) => call.call_sid],
      ['POD', (call) => call.pod_name],
      ['POOL', (call) => call.source_pool],
      ['MERCHANT', (call) => call.merchant_id || '-'],
      ['>AGE', (call) => age(call.allocated_at, nowMs)],
      ['LEASE', (call) => leaseCell(call.lease_expires_at, nowMs)],
    ],
  });
}

const reasons: Readonly<Record<string, string | undefined>> = {
  no_pods: 'no free pod',
  merchant_limit: 'max_calls of its merchant',
};

async function listWaiting({ api, options }: GivenRouter<Options>): Promise<Outcome> {
  const { body, nowMs } = await readAll(api, 'waiting');
  body.sort(
    (a, b) =>
      byText(a.waiting_since, b.waiting_since) || a.position - b.position || byText(a.call_sid, b.call_sid),
  );
  return listOutcome('waiting', body, options.limit, {
    noun: 'call',
    empty: 'no waiting calls',
    columns: [
      ['CALL', (call) => call.call_sid],
      ['MERCHANT', (call) => call.merchant_id || '-'],
      ['>POSITION', (call) => call.position],
      ['>WAITS', (call) => age(call.waiting_since, nowMs)],
      ['UNTIL', (call) => countdown(call.wait_expires_at, nowMs)],
      ['REASON', (call) => reasons[call.reason] ?? call.reason],
    ],
  });
}

async function showCall(api: RouterApi, sid: string): Promise<Outcome> {
  let found: Answer<Call>;
  try {
    found = await api.send<Call>(`/calls/${encodeURIComponent(sid)}`, 'call_sid');
  } catch (error) {
    if (error instanceof Failure && error.code === 'call_not_found') return endedCall(api, sid, error);
    throw error;
  }
  const { body, nowMs } = found;
  const renewed = body.renewed_at ? `${age(body.renewed_at, nowMs)} ago` : 'never';
  const text = facts([
    ['call', body.call_sid],
    ['pod', body.pod_name],
    ['pool', body.source_pool],
    ['merchant', body.merchant_id || '-'],
    ['provider', `${body.provider}, flow ${body.flow}, template ${body.template}`],
    ['age', `${age(body.allocated_at, nowMs)} (since ${body.allocated_at})`],
    ['renewed', renewed],
    ['lease', leaseCell(body.lease_expires_at, nowMs)],
    ['fence', body.fence],
  ]);
  return { document: body, text };
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
async function endedCall(api: RouterApi, sid: string, notLive: Failure): Promise<Outcome> {
  const { body, nowMs } = await api
    .send<Timeline>(`/calls/${encodeURIComponent(sid)}/timeline`, 'events')
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
  const text = facts([
    ['call', sid],
    ['pod', String(pod?.pod ?? '-')],
    ['pool', String(pod?.pool || '-')],
    ['began', isComplete ? (events[0]?.at ?? '-') : 'before the kept events'],
    ['ended', ended ? endCell(last, ended, isComplete ? events[0] : undefined) : '-'],
  ]);
  return {
    document: body,
    text: `${text}\n${eventLines(events)}`,
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

const sidArgument = new Argument('<sid>', "the provider's call id");

export const allocate = routerCommand<
  Record<'merchant' | 'provider' | 'flow' | 'template', string | undefined>
>({
  name: 'allocate',
  summary: 'give a call a pod, or show the one it has',
  about:
    'The call keeps the pod until it is released or its lease expires: release what you allocate for a test.',
  examples: [
    ['allocate CA1234', ''],
    ['allocate CA1234 --merchant acme', "with this merchant's chain"],
    ['allocate CA1234 --json | jq -r .ws_url', 'only the address of the audio'],
  ],
  exits: [3],
  args: [sidArgument],
  options: [
    new Option('--merchant <id>', 'merchant of the call'),
    new Option('--provider <name>', 'telephony provider (default: twilio)'),
    new Option('--flow <name>', 'flow of the conversation (default: v2)'),
    new Option('--template <name>', 'template of the conversation'),
  ],
  async run({ api, args: [call_sid], options: { merchant: merchant_id, provider, flow, template } }) {
    const body = { call_sid, merchant_id, provider, flow, template };
    const { body: got, nowMs } = await api.send<Allocated>('POST /allocate', 'pod_name', { body });
    const text = facts([
      ['pod', `${got.pod_name}${got.was_existing ? ' (already allocated)' : ''}`],
      ['pool', got.source_pool],
      ['ws_url', got.ws_url],
      ['lease', countdown(got.lease_expires_at, nowMs)],
      ['fence', got.fence],
    ]);
    return { document: got, text };
  },
});

const fenceHelp = 'the fence from allocate: a later allocation is then not released';

export const release = routerCommand<{ fence?: number }>({
  name: 'release',
  summary: 'end a call; its pod is available again',
  examples: [
    ['release CA1234', ''],
    ['release CA1234 --fence 1763193600000001', 'only this allocation'],
  ],
  exits: [4, 5],
  args: [sidArgument],
  options: [new Option('--fence <n>', fenceHelp).argParser(wholeNumber(1, Number.MAX_SAFE_INTEGER))],
  async run({ api, args: [call_sid = ''], options: { fence } }) {
    const { body } = await api.send<Released>('POST /release', 'pod_name', { body: { call_sid, fence } });
    const { pod_name, released_to_pool, was_draining, was_waiting } = body;
    const where = was_waiting
      ? 'it was waiting for a pod, and has left the queue'
      : released_to_pool
        ? `pod ${pod_name} is available again in ${released_to_pool}`
        : `pod ${pod_name} gets no new calls: it is ${was_draining ? 'draining' : 'terminating or not ready'}`;
    return { document: body, text: `call ${clean(call_sid)} ended; ${clean(where)}\n` };
  },
});
