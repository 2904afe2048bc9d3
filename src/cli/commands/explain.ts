/** `smart-router explain`: what an allocate would do now, or what happened to a past call. */
import { Option } from 'commander';
import { type Cell, table } from '../../terminal/table.js';
import { clean, paint } from '../../terminal/text.js';
import { routerCommand } from '../access.js';
import type { RouterApi } from '../api.js';
import type { Outcome } from '../cli.js';
import { age, count, span } from '../format.js';
import type { Explained, RouterEvent, Timeline } from '../replies.js';
import { eventLines } from './events.js';

export const explain = routerCommand<{ merchant?: string; call?: string; wait: boolean }>({
  name: 'explain',
  summary: 'say whether a call would get a pod now, and why; or why a past call got none',
  about:
    'The router runs the decision of an allocate and changes nothing. A call is assumed to wait if the configuration allows that, as calls of Twilio and Plivo do.',
  examples: [
    ['explain', 'for a call without a merchant'],
    ['explain --merchant acme', "with this merchant's chain, limit and queue"],
    ['explain --merchant acme --no-wait', 'for an allocate without `wait`'],
    ['explain --call CA1234', 'what a call saw when it asked, and what would happen now'],
    ['explain --merchant acme --json | jq -r .would', 'allocate, wait or refuse'],
  ],
  exits: [4],
  options: [
    new Option('--merchant <id>', 'merchant of the call'),
    new Option('--no-wait', 'for a call that may not wait'),
    new Option('--call <sid>', 'tell what happened to this call').conflicts('merchant'),
  ],
  async run({ api, options: { merchant, call, wait } }) {
    if (call !== undefined) return explainCall(api, call, wait);
    const document = await askRouter(api, merchant, wait);
    return { document, text: explanationText(document) };
  },
});

async function askRouter(api: RouterApi, merchant: string | undefined, wait: boolean): Promise<Explained> {
  const body = { merchant_id: merchant || undefined, wait: wait ? '0s' : undefined };
  return (await api.send<Explained>('POST /explain', 'would', { body })).body;
}

const colours = { allocate: 'green', wait: 'yellow', refuse: 'red' } as const;
const results = { taken: 'taken', passed_over: 'passed over', not_tried: 'not tried' } as const;

function explanationText(explained: Explained): string {
  const { would, steps, skipped, next } = explained;
  const rows = steps.map((step): Cell[] => {
    const least = step.counted ? '' : '≥';
    const blocked =
      step.draining + step.terminating + step.not_ready + step.awaiting_report + step.unconfirmed;
    const others = blocked + step.set_back + step.misplaced + step.unreadable;
    return [
      step.pool,
      step.type ?? '-',
      step.pods,
      least + step.free,
      least + step.busy,
      least + others,
      { text: results[step.result], colour: step.result === 'taken' ? 'green' : undefined },
      step.reason,
    ];
  });
  const heads = ['POOL', 'TYPE', '>PODS', '>FREE', '>BUSY', '>BLOCKED', 'RESULT', 'WHY'];
  const parts = [
    `${paint(colours[would], sentence(explained.summary))}\n`,
    rows.length > 0 ? table(heads, rows) : '',
    skipped.map(({ step, reason }) => `step ${clean(step)} skipped: ${clean(reason)}\n`).join(''),
    standingLines(explained).join(''),
    next.length > 0 ? `next:\n${next.map(({ text }) => `  ${clean(text)}\n`).join('')}` : '',
  ];
  return parts.filter((part) => part !== '').join('\n');
}

/** The merchant's limit and its queue. */
function standingLines({ max_calls, live_calls, queue }: Explained): string[] {
  const limit = max_calls === null ? [] : [`limit: ${live_calls} of ${max_calls} calls (max_calls)\n`];
  if (!queue) return limit;
  const { waiting, max_waiting, waiting_all, max_waiting_all, higher_priority } = queue;
  const before = higher_priority > 0 ? `; ${higher_priority} of a higher priority are served first` : '';
  const all = `${waiting_all} of ${max_waiting_all} in all queues`;
  return [...limit, `queue: ${waiting} of ${max_waiting} calls wait in this queue, ${all}${before}\n`];
}

function sentence(text: string): string {
  const shown = clean(text);
  return `${shown.charAt(0).toUpperCase()}${shown.slice(1)}.`;
}

async function explainCall(api: RouterApi, sid: string, wait: boolean): Promise<Outcome> {
  const path = `/calls/${encodeURIComponent(sid)}/timeline`;
  const { body, nowMs } = await api.send<Timeline>(path, 'events');
  const { events } = body;
  const merchant = events.find((event) => event.merchant)?.merchant as string | undefined;
  const now = await askRouter(api, merchant, wait);
  const asked = events.findLast((event) => typeof event.saw === 'string');
  const parts = [
    `${sentence(`call ${sid} ${storyOf(events, nowMs)}`)}\n`,
    asked ? `it saw, at ${clean(asked.at)}:\n${sawLines(String(asked.saw), merchant)}` : '',
    eventLines(events),
    `now: ${explanationText(now)}`,
  ];
  return { document: { ...body, now }, text: parts.filter((part) => part !== '').join('\n') };
}

/** How the call got a pod, or why it got none. */
const stories: Readonly<Record<string, (event: RouterEvent) => string>> = {
  no_pods: ({ code = 'no_pods' }) => `was refused (${code})`,
  call_waiting: ({ position }) => `began to wait, at place ${position} of its queue`,
  call_assigned: ({ pod, pool, waited_ms }) =>
    `got pod ${pod} of ${pool}, after ${span(Number(waited_ms))} in the queue`,
  call_allocated: ({ pod, pool }) => `got pod ${pod} of ${pool}`,
  call_adopted: ({ pod, pool }) => `was adopted: pod ${pod} of ${pool} reported it`,
  call_imported: ({ pod, pool }) => `was imported with pod ${pod}${pool ? ` of ${pool}` : ''}`,
  wait_expired: ({ waited_ms }) => `got no pod: its wait expired after ${span(Number(waited_ms))}`,
  wait_abandoned: ({ waited_ms, reason }) => `left the queue after ${span(Number(waited_ms))} (${reason})`,
};

function storyOf(events: readonly RouterEvent[], nowMs: number): string {
  const last = events.findLast(({ type }) => Object.hasOwn(stories, type));
  if (!last) return 'began before the kept events';
  return `${stories[last.type]?.(last)}, ${age(last.at, nowMs)} ago`;
}

/** `pool:gold 2 pods 1 calls 1 blocked; ...` or `max_calls 3`, one line each. */
function sawLines(saw: string, merchant: string | undefined): string {
  const limit = /^max_calls (\d+)$/.exec(saw);
  if (limit) return `  ${clean(merchant ?? 'the merchant')} was at its max_calls of ${limit[1]}\n`;
  const lineOf = (part: string) => {
    const [, pool, pods, calls, blocked] =
      /^(\S+) (\d+) pods(?: (\d+) calls (\d+) blocked)?$/.exec(part) ?? [];
    if (pool === undefined) return part;
    const rest = calls === undefined ? '' : `, ${count(Number(calls), 'call')}, ${blocked} blocked`;
    return `${pool}: ${count(Number(pods), 'pod')}${rest}`;
  };
  const lines = saw.split('; ').map((part) => `  ${clean(lineOf(part))}\n`);
  return lines.join('');
}
