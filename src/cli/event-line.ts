/** One event as a line for people. The fields differ by type, and a newer router may have more: all are shown. */

import type { Colour, Paint } from '../terminal/text.js';
import { clean } from '../terminal/text.js';
import type { RouterEvent } from './event-feed.js';

/** Bad news red, what came back by itself magenta, what people or the leader changed blue and cyan. */
const colours: Readonly<Record<string, Colour | undefined>> = {
  call_allocated: 'green',
  call_adopted: 'green',
  call_imported: 'green',
  call_released: undefined,
  call_recovered: 'magenta',
  call_lost: 'red',
  no_pods: 'red',
  pod_registered: 'cyan',
  pod_resumed: 'cyan',
  pod_recovered: 'magenta',
  pod_removed: 'yellow',
  pod_suspended: 'yellow',
  pod_draining: 'blue',
  pod_undrained: 'blue',
  leader_elected: 'bold',
  removals_confirmed: 'yellow',
  tiers_changed: 'cyan',
  merchant_changed: 'cyan',
};

export const knownTypes: readonly string[] = Object.keys(colours);

const typeWidth = Math.max(...knownTypes.map((type) => type.length));
const shown = new Set(['id', 'type', 'at', 'call', 'pod']);
/** A call SID has up to 256 characters; the JSON has all of them. */
const longest = 40;

export function eventColour(type: string): Colour | undefined {
  return Object.hasOwn(colours, type) ? colours[type] : undefined;
}

/** `2026-11-15T08:53:21.279Z  call_allocated      CA1 voice-agent-0 pool:gold fence=7`. */
export function eventLine(event: RouterEvent, time: string, paint: Paint): string {
  const type = paint(eventColour(event.type), clean(event.type).padEnd(typeWidth));
  return `${paint('dim', time)}  ${type}  ${eventText(event)}`.trimEnd();
}

export function eventText(event: RouterEvent): string {
  const who = [event.call, event.pod].filter((name) => name !== undefined && name !== '');
  const rest = Object.entries(event)
    .filter(([name, value]) => !shown.has(name) && value !== '')
    .map(([name, value]) => (name === 'pool' ? String(value) : `${name}=${valueText(name, value)}`));
  return [...who.map((name) => shorten(String(name))), ...rest].map(clean).join(' ');
}

export function shorten(text: string): string {
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}

/** A drain's end comes in milliseconds since 1970, which nobody reads. */
function valueText(name: string, value: unknown): string {
  const text = String(value);
  return name === 'until' && /^\d{13}$/.test(text) ? new Date(Number(text)).toISOString() : text;
}
