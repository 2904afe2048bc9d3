/** The text of one event. */

import type { ComponentChildren } from 'preact';
import type { MerchantConfig } from '../../../src/calls/chain.js';
import { eventName, isLimit, plural, poolName, spaced, toneOf } from '../labels';
import type { RequestState } from '../live/use-request';
import { clockText, durationText } from '../time';
import type { EventPage, RouterEvent } from '../types';
import { CallLink, Note, PodLink, Time } from './parts';

/** An event in a list of class `line`, with its details below. */
export const EventItem = ({ event, children }: { event: RouterEvent; children: ComponentChildren }) => (
  <li data-tone={toneOf(event.type)}>
    <b>{eventName(event.type)}</b>{' '}
    <span class="soft small">
      <Time at={event.at} />
    </span>
    <div class="small">{children}</div>
  </li>
);

/** Stored events, newest first. */
export function PastEvents(props: { past: RequestState<EventPage>; none: string; without?: 'pod' }) {
  const { value, problem } = props.past;
  return (
    <>
      {problem && <Note tone="bad">{problem}</Note>}
      {value?.events.length === 0 && <p class="soft small">{props.none}</p>}
      <ol class="line">
        {value?.events.map((event) => (
          <EventItem key={event.id} event={event}>
            <EventText event={event} without={props.without} />
          </EventItem>
        ))}
      </ol>
    </>
  );
}

export const EventType = ({ type }: { type: string }) => (
  <span class="ev-type" data-tone={toneOf(type)}>
    {eventName(type)}
  </span>
);

export function EventText({ event, without }: { event: RouterEvent; without?: 'pod' | undefined }) {
  const { type, call, pool, merchant } = event;
  const pod = without === 'pod' ? undefined : event.pod;
  const details = [
    pool && poolName(pool),
    merchant && (type === 'merchant_changed' ? merchant : `for ${merchant}`),
    ...detailsOf(event),
  ].filter(Boolean);
  return (
    <>
      {call && <CallLink sid={call} />}
      {call && pod && <span class="soft"> {/released|lost|recovered/.test(type) ? '←' : '→'} </span>}
      {pod && <PodLink name={pod} />} <span class="soft">{details.join(' · ')}</span>
    </>
  );
}

/** The details beside call, pod, pool and merchant; unknown fields are shown as they are. */
export function detailsOf(event: RouterEvent): string[] {
  const { id, type, at, call, pod, pool, merchant, reason, by, chain, fence, epoch, uid, ...rest } = event;
  return [
    chain &&
      !isLimit(event.saw) &&
      `tried ${chain.split(' ').filter(Boolean).map(poolName).join(', ')}: no free pod`,
    reason,
    ...Object.entries(rest).map(([name, value]) => value && detailText(name, value)),
    by && byText(by),
  ].filter((detail): detail is string => Boolean(detail));
}

/** The user, as in the audit log of the router. */
export const byText = (by: string) => (by === 'start' ? 'by a router at startup' : `by ${by}`);

/** How the tiers were set. */
const modes: Record<string, string> = {
  init: 'initial, from TIER_CONFIG',
  apply: 'written directly to the store',
  replace: '',
};

/** `gold had 2 pods with 2 calls` for `pool:gold 2 pods 2 calls 0 blocked`. */
function sawText(saw: string): string {
  const parts = saw.split('; ').map((part) => {
    const seen = /^(\S+) (\d+) pods(?: (\d+) calls (\d+) blocked)?$/.exec(part);
    if (!seen) return part;
    const [, pool = '', pods, calls, blocked] = seen;
    if (pods === '0') return `${poolName(pool)} had no pods`;
    const closed = Number(blocked) > 0 ? `, ${blocked} of them blocked` : '';
    return `${poolName(pool)} had ${plural(Number(pods), 'pod')} with ${plural(Number(calls), 'call')}${closed}`;
  });
  return parts.join('; ');
}

/** The rules of a merchant as text; invalid JSON is shown as it is. */
function rulesText(json: string): string {
  try {
    const rules = JSON.parse(json) as MerchantConfig;
    const { pool, tier, fallback } = rules;
    const parts = [
      pool && `own pool ${pool}`,
      tier && `from tier ${tier}`,
      fallback?.length && `chain ${fallback.map(poolName).join(', ')}`,
      limitsText(rules),
    ].filter(Boolean);
    return parts.join(', ') || 'the default chain';
  } catch {
    return json;
  }
}

/** How the calls of a merchant wait and are limited; empty without such rules. */
export function limitsText({ max_calls, hold, priority, weight, fallback_number }: MerchantConfig): string {
  const parts = [
    max_calls !== undefined && `at most ${plural(max_calls, 'call')}`,
    hold && `waits up to ${hold.max_wait}, ${plural(hold.max_waiting, 'call')} at once`,
    priority !== undefined && `priority ${priority}`,
    weight !== undefined && `weight ${weight}`,
    fallback_number && `then ${fallback_number}`,
  ];
  return parts.filter(Boolean).join(', ');
}

function detailText(name: string, value: string): string {
  if (name === 'leader' || name === 'outcome') return value;
  if (name === 'config') return rulesText(value);
  if (name === 'mode') return modes[value] ?? value;
  if (name === 'saw')
    return isLimit(value) ? `its merchant was at its limit, ${value.replace(' ', ' = ')}` : sawText(value);
  if (name === 'position') return `place ${value} in the queue`;
  if (name === 'waited_ms') return `waited ${durationText(Number(value) / 1000)}`;
  if (name === 'until' && /^\d+$/.test(value))
    return `until ${new Date(Number(value)).toLocaleTimeString('en-GB')}`;
  if (name === 'age_seconds') return `after ${durationText(Number(value))}`;
  if (name === 'lost') return value === '0' ? '' : `${plural(Number(value), 'call')} lost`;
  if (name.endsWith('_at')) return `${spaced(name)} ${clockText(value)}`;
  if (name === 'calls') return plural(Number(value), 'call');
  return `${spaced(name)} ${value}`;
}
