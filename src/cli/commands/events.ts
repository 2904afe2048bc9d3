/** `smart-router events`: prints past events and follows new ones. */
import { InvalidArgumentError, Option } from 'commander';
import { unlessAborted } from '../../clock.js';
import { parseDuration } from '../../config/durations.js';
import { type Colour, clean, paint } from '../../terminal/text.js';
import { type GivenRouter, routerCommand } from '../access.js';
import type { RouterApi } from '../api.js';
import type { Outcome } from '../cli.js';
import { type EventFilter, follow, matches, newestId, searchEvents } from '../event-stream.js';
import { count } from '../format.js';
import { wholeNumber } from '../input.js';
import { type RouterEvent, readStatus } from '../replies.js';
import { untilSignal } from '../signals.js';

interface Options extends EventFilter {
  follow?: true;
  /** An event id, or how many milliseconds ago. */
  since?: string | number;
  limit?: number;
}

const defaultLimit = 100;
const maxEvents = 1_000_000;

export const events = routerCommand<Options>({
  name: 'events',
  summary: 'show events of calls, pods and configuration, and follow them',
  about:
    'Without --since: the newest 100 that match, or with --follow all from now on. The router keeps about 50,000 events, rare types longer. --follow reconnects and resumes after the last event: none is lost or shown twice. Ctrl-C ends it with exit code 0.',
  json: 'print one JSON document; with --follow one per line for each event',
  examples: [
    ['events --since 10m', ''],
    ['events --call CA1234', 'the kept events of one call'],
    ['events --follow --type call_lost,no_pods', 'only failures, live'],
    ['events --follow --json | jq -r .pod', 'for a script'],
  ],
  options: [
    new Option('-f, --follow', 'print new events until Ctrl-C'),
    new Option('--since <when>', 'a duration like 10m, or an event id').argParser(parseSince),
    new Option('--type <types>', 'only these types, separated by commas').argParser(parseTypes),
    new Option('--call <sid>', 'only events of this call'),
    new Option('--pod <name>', 'only events of this pod'),
    new Option(
      '--limit <n>',
      'show only the newest events, at most this many (default: 100, or all with --since)',
    ).argParser(wholeNumber(1, maxEvents)),
  ],
  run: (given) => (given.options.follow ? followEvents(given) : list(given)),
});

async function list({ api, options }: GivenRouter<Options>): Promise<Outcome> {
  const { since, limit } = options;
  const found = await searchEvents(api, options, {
    since: since === undefined ? '0-0' : await startOf(api, since),
    limit: limit ?? (since === undefined ? defaultLimit : maxEvents),
  });
  const text = `${eventLines(found)}\n${count(found.length, 'event')}\n`;
  return {
    document: { events: found },
    text: found.length === 0 ? 'no events\n' : text,
    warnings: unknownTypes(options),
  };
}

async function followEvents({ api, cli, options }: GivenRouter<Options>): Promise<undefined> {
  const { output, clock } = cli;
  const { since, limit, json } = options;
  const show = (event: RouterEvent) => output.out(json ? JSON.stringify(event) : eventLine(event, event.at));
  for (const warning of unknownTypes(options)) output.warn(warning);
  const stop = untilSignal();
  const work = async () => {
    // The start is read before the kept events, so that no event is missed.
    const start = await startOf(api, since);
    const wanted = { since: since !== undefined ? start : '0-0', limit: limit ?? 0 };
    const kept = limit === undefined ? [] : await searchEvents(api, options, wanted);
    for (const event of kept) show(event);
    await follow(api, clock, {
      since: kept.at(-1)?.id ?? start,
      signal: stop.signal,
      onEvent: (event) => {
        if (matches(event, options)) show(event);
      },
      onLost: (failure) =>
        output.warn(failure ? `${failure.message} Retrying.` : 'reconnected; resuming after the last event'),
      onGap: (keptSince) =>
        output.warn(`the router keeps no events from before ${keptSince}: some are missing here`),
    });
  };
  try {
    await unlessAborted(work(), stop.signal);
  } finally {
    stop.release();
  }
}

/** An event id, or milliseconds of the router's clock. */
async function startOf(api: RouterApi, since: Options['since']): Promise<string> {
  if (typeof since === 'string') return since;
  if (since === undefined) return newestId(api);
  const { nowMs } = await readStatus(api);
  return String(Math.max(0, Math.floor(nowMs - since)));
}

/** A warning only: a newer router may have more types. */
function unknownTypes({ type = [] }: EventFilter): string[] {
  return type
    .filter((name) => !knownTypes.includes(name))
    .map((name) => `unknown event type ${clean(name)}; the types are ${knownTypes.join(', ')}`);
}

function parseSince(text: string): string | number {
  if (/^\d{10,16}(-\d{1,19})?$/.test(text) || /^0(-0)?$/.test(text)) return text;
  const agoMs = parseDuration(text);
  if (agoMs !== undefined) return agoMs;
  throw new InvalidArgumentError(
    'It must be a duration like 30s, 10m or 2h, or an event id like 1794732801279-0; 0 means all kept events.',
  );
}

function parseTypes(text: string): string[] {
  const types = text.split(',').map((name) => name.trim());
  if (types.every((name) => /^[a-z_]{1,64}$/.test(name)) && types.length <= 32) return types;
  throw new InvalidArgumentError('It must be names like call_lost,no_pods.');
}

/** Failures red, recoveries magenta, changes by people or the leader blue and cyan. */
const colours: Readonly<Record<string, Colour | undefined>> = {
  call_allocated: 'green',
  call_waiting: 'yellow',
  call_assigned: 'green',
  wait_abandoned: 'red',
  wait_expired: 'red',
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
  leases_extended: 'yellow',
  generation_began: 'yellow',
  removals_confirmed: 'yellow',
  tiers_changed: 'cyan',
  merchant_changed: 'cyan',
};

const knownTypes: readonly string[] = Object.keys(colours);

const typeWidth = Math.max(...knownTypes.map((type) => type.length));
const shown = new Set(['id', 'type', 'at', 'call', 'pod']);
/** A call SID has up to 256 characters; JSON is not shortened. */
const maxNameLength = 40;

export function eventColour(type: string): Colour | undefined {
  return Object.hasOwn(colours, type) ? colours[type] : undefined;
}

/** `2026-11-15T08:53:21.279Z  call_allocated      CA1 voice-agent-0 pool:gold fence=7`. */
export function eventLine(event: RouterEvent, time: string): string {
  const type = clean(event.type);
  // Blanks at the end must not be inside the colours, where trimEnd does not find them.
  const gap = ' '.repeat(Math.max(0, typeWidth - type.length));
  return `${paint('dim', time)}  ${paint(eventColour(event.type), type)}${gap}  ${eventText(event)}`.trimEnd();
}

export function eventLines(events: readonly RouterEvent[]): string {
  return events.map((event) => `${eventLine(event, event.at)}\n`).join('');
}

export function eventText(event: RouterEvent): string {
  const who = [event.call, event.pod].filter((name) => name !== undefined && name !== '');
  const rest = Object.entries(event)
    .filter(([name, value]) => !shown.has(name) && value !== '')
    .map(([name, value]) => (name === 'pool' ? String(value) : `${name}=${valueText(name, value)}`));
  return [...who.map((name) => shorten(String(name))), ...rest].map(clean).join(' ');
}

export function shorten(text: string): string {
  return text.length > maxNameLength ? `${text.slice(0, maxNameLength - 1)}…` : text;
}

/** The end of a drain is in milliseconds since 1970. */
function valueText(name: string, value: unknown): string {
  const text = String(value);
  return name === 'until' && /^\d{13}$/.test(text) ? new Date(Number(text)).toISOString() : text;
}
