/** A call that is not live any more, told from the events that the router keeps: which pod, when, and why it ended. */

import { type Cell, facts } from '../terminal/table.js';
import { clean } from '../terminal/text.js';
import { age, span } from './ages.js';
import type { RouterApi } from './api.js';
import type { Cli, Outcome } from './cli.js';
import type { RouterEvent } from './event-feed.js';
import { eventLine } from './event-line.js';
import { Failure } from './failure.js';

interface Timeline {
  call_sid: string;
  live: object | null;
  events: RouterEvent[];
  is_complete: boolean;
}

const endings: Readonly<Record<string, string | undefined>> = {
  call_released: 'released',
  call_recovered: 'ended by the router',
  call_lost: 'lost with its pod',
  no_pods: 'refused: no pod was free',
};

/** `notLive` is what the router said; it stays the failure, so that a script sees exit code 4 as before. */
export async function endedCall(
  api: RouterApi,
  { screen: { paint } }: Cli,
  sid: string,
  notLive: Failure,
): Promise<Outcome> {
  const { body, nowMs } = await api
    .send<Timeline>(`/calls/${encodeURIComponent(sid)}/timeline`, { has: 'events' })
    .catch((error: unknown) => {
      // Nothing is kept of it: the router says so itself.
      if (error instanceof Failure && error.code === 'call_not_found') throw error;
      // Too busy to look back, or a router of before.
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
      ['began', isComplete ? (events[0]?.at ?? '-') : 'before what is kept'],
      ['ended', ended ? endCell(last, ended, isComplete ? events[0] : undefined) : '-'],
    ],
    paint,
  );
  return {
    document: body,
    text: `${text}\n${events.map((event) => `${eventLine(event, event.at, paint)}\n`).join('')}`,
    failure: new Failure(
      notLive.code,
      `call ${JSON.stringify(clean(sid))} is not live: ${ended ? `it was ${ended}` : 'this is what is kept of it'}`,
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
  // Quotes only where a shell needs them: most SIDs are letters and digits.
  const name = /^[\w.:-]+$/.test(sid) ? sid : `'${clean(sid).replaceAll("'", `'\\''`)}'`;
  return new Failure(
    notLive.code,
    `${notLive.message}; what is kept of it: \`smart-router events --call ${name}\``,
    notLive.problems,
  );
}
