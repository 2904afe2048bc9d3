/** One event in words. */
import type { RouterEvent } from '../shapes';
import { clockText, durationText } from '../time';
import { eventName, poolName, toneOf } from '../words';
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
    ...more.map(([name, value]) => detail(name, value ?? '')),
    by && `by ${by}`,
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

function detail(name: string, value: string): string {
  if (name === 'leader' || name === 'outcome') return value;
  if (name === 'config') return rulesText(value);
  if (name === 'until' && /^\d+$/.test(value))
    return `until ${new Date(Number(value)).toLocaleTimeString('en-GB')}`;
  if (name === 'age_seconds') return `after ${durationText(Number(value))}`;
  if (name === 'lost') return value === '0' ? '' : `${value} ${value === '1' ? 'call' : 'calls'} lost`;
  if (name.endsWith('_at')) return `${name.replaceAll('_', ' ')} ${clockText(value)}`;
  if (name === 'calls') return `${value} ${value === '1' ? 'call' : 'calls'}`;
  return `${name.replaceAll('_', ' ')} ${value}`;
}
