/** One event in words. */

import { clockText, durationText } from '../time';
import type { RouterEvent } from '../types';
import { eventName, plural, poolName, toneOf } from '../words';
import { CallLink, PodLink } from './parts';

export const EventType = ({ type }: { type: string }) => (
  <span class="ev-type" data-tone={toneOf(type)}>
    {eventName(type)}
  </span>
);

const told = [
  'id',
  'type',
  'at',
  'call',
  'pod',
  'pool',
  'merchant',
  'reason',
  'by',
  'chain',
  'fence',
  'epoch',
  'uid',
];

/** What the event says beside what and when; fields that a newer router adds are shown as they are. */
export function EventText({ event, without }: { event: RouterEvent; without?: 'call' | 'pod' }) {
  const { call, pod, pool, merchant, reason, by, chain } = event;
  const more = Object.entries(event).filter(([name, value]) => !told.includes(name) && value !== '');
  const details = [
    pool && poolName(pool),
    merchant && (event.type === 'merchant_changed' ? merchant : `for ${merchant}`),
    chain && `tried ${chain.split(' ').filter(Boolean).map(poolName).join(', ')}: none was free`,
    reason,
    ...more.map(([name, value]) => detailText(name, value ?? '')),
    by && byText(by),
  ].filter(Boolean);
  return (
    <>
      {call && without !== 'call' && <CallLink sid={call} />}
      {call && pod && without === undefined && (
        <span class="soft"> {/released|lost|recovered/.test(event.type) ? '←' : '→'} </span>
      )}
      {pod && without !== 'pod' && <PodLink name={pod} />} <span class="soft">{details.join(' · ')}</span>
    </>
  );
}

/** Who did it, as the router's own log of who did what has it. */
export const byText = (by: string) => (by === 'start' ? 'by a router at its start' : `by ${by}`);

/** How the tiers came to be what they are. */
const modes: Record<string, string> = {
  init: 'the first ones, from TIER_CONFIG',
  apply: 'written into the store by hand',
  replace: '',
};

/** `pool:gold 2 pods 2 calls 0 blocked; pool:basic 0 pods` as it is in a sentence. */
function sawText(saw: string): string {
  const parts = saw.split('; ').map((part) => {
    const seen = /^(\S+) (\d+) pods(?: (\d+) calls (\d+) blocked)?$/.exec(part);
    if (!seen) return part;
    const [, pool = '', pods, calls, blocked] = seen;
    if (pods === '0') return `${poolName(pool)} had no pods`;
    const closed = Number(blocked) > 0 ? `, ${blocked} of them taking no calls` : '';
    return `${poolName(pool)} had ${plural(Number(pods), 'pod')} with ${plural(Number(calls), 'call')}${closed}`;
  });
  return parts.join('; ');
}

/** The rules of a merchant as a sentence has them; what cannot be read is shown as it is. */
function rulesText(json: string): string {
  try {
    const { pool, tier, fallback } = JSON.parse(json) as {
      pool?: string;
      tier?: string;
      fallback?: string[];
    };
    const parts = [
      pool && `own pool ${pool}`,
      tier && `from tier ${tier}`,
      fallback?.length && `chain ${fallback.map(poolName).join(', ')}`,
    ].filter(Boolean);
    return parts.join(', ') || 'the default chain';
  } catch {
    return json;
  }
}

export function detailText(name: string, value: string): string {
  if (name === 'leader' || name === 'outcome') return value;
  if (name === 'config') return rulesText(value);
  if (name === 'mode') return modes[value] ?? value;
  if (name === 'saw') return sawText(value);
  if (name === 'until' && /^\d+$/.test(value))
    return `until ${new Date(Number(value)).toLocaleTimeString('en-GB')}`;
  if (name === 'age_seconds') return `after ${durationText(Number(value))}`;
  if (name === 'lost') return value === '0' ? '' : `${value} ${value === '1' ? 'call' : 'calls'} lost`;
  if (name.endsWith('_at')) return `${name.replaceAll('_', ' ')} ${clockText(value)}`;
  if (name === 'calls') return `${value} ${value === '1' ? 'call' : 'calls'}`;
  return `${name.replaceAll('_', ' ')} ${value}`;
}
