/**
 * What the records process tells its router four times a second: its state, and the events and log lines since the last
 * report. Handlers can reach the channel, so the router checks every report before it uses it.
 */
import { AppError } from '../errors.js';
import type { LoopState } from '../loop.js';
import {
  type OperationName,
  operationNames,
  type RecordsStatus,
  type RemoteOperations,
} from '../records/admin.js';
import type { RecordGauges } from '../records/metrics.js';
import { recordEvents } from '../records/observer.js';
import { type Channel, isArrayOf, isObject, isString, NoAnswer } from './channel.js';
import type { RecordsListener } from './records-plane.js';

/** The state of the records process at one moment. */
export interface RecordsState {
  status: RecordsStatus;
  gauges: RecordGauges;
  loops: LoopState[];
  /** Of its workflows. */
  longestTimeoutMs: number;
  memoryMb: number;
}

type RecordsEvent = [name: keyof RecordsListener, args: unknown[]];

export interface Report {
  /** Undefined while the workflows are loaded. */
  state: RecordsState | undefined;
  /** Since the last report, in order. */
  events: RecordsEvent[];
  /** Log lines, as JSON. */
  lines: string[];
  /** Events and lines that did not fit. */
  dropped: number;
}

/** About a second of the busiest loop. */
const maxEvents = 20_000;
const maxLines = 1000;
/** Workflows and loops. */
const maxNames = 1000;
const maxLabelLength = 128;

/**
 * Collects events and log lines for the next report. A report is sent only after the previous one has been written;
 * events and lines beyond the next one's limits are dropped and counted.
 */
export class ReportBuffer {
  #next: Omit<Report, 'state'> = { events: [], lines: [], dropped: 0 };
  #sent: Promise<void> = Promise.resolve();

  /** `send` resolves when the report has been written. */
  constructor(private readonly send: (collected: Omit<Report, 'state'>) => Promise<void>) {}

  addEvent(...event: RecordsEvent): void {
    if (this.#next.events.length < maxEvents) this.#next.events.push(event);
    else this.#next.dropped += 1;
  }

  addLine(text: string): void {
    if (this.#next.lines.length < maxLines) this.#next.lines.push(text);
    else this.#next.dropped += 1;
  }

  /** Resolves when everything up to now has been written. */
  flush(): Promise<void> {
    this.#sent = this.#sent.then(() => {
      const collected = this.#next;
      this.#next = { events: [], lines: [], dropped: 0 };
      return this.send(collected);
    });
    return this.#sent;
  }
}

const eventNames = new Set<unknown>([...recordEvents, 'loopCrashed', 'storeAnswered']);

/**
 * Throws if the texts of a report, which become labels of metrics, are too long, or too many together with those `known`
 * before: a handler can reach the channel, and each new label is a new series.
 */
export function checkLabels({ state, events }: Pick<Report, 'state' | 'events'>, known: Set<string>): void {
  const texts = events
    .flatMap(([, args]) => args.filter(isString))
    .concat(...(state?.gauges.stuck?.keys() ?? []));
  for (const text of texts) {
    if (String(text).length > maxLabelLength) throw new Error('the name of a workflow or loop is too long');
    known.add(String(text));
  }
  if (known.size > maxNames) throw new Error(`more than ${maxNames} names of workflows and loops`);
}

/** Throws if the value is not a report. Does not check the arguments of events and the texts of lines. */
export function readReport(report: unknown): Report {
  const { state, events, lines, dropped } = isObject(report) ? report : {};
  const isEvent = (event: unknown) =>
    Array.isArray(event) && eventNames.has(event[0]) && Array.isArray(event[1]);
  if (state !== undefined) readState(state);
  const isValid =
    isArrayOf(events, maxEvents, isEvent) &&
    isArrayOf(lines, maxLines, isString) &&
    Number.isInteger(dropped);
  if (!isValid) throw new Error('not a valid report');
  return report as Report;
}

export function readState(state: unknown): RecordsState {
  const { status, gauges, loops, longestTimeoutMs, memoryMb } = isObject(state) ? state : {};
  const isValid =
    isObject(status) &&
    isArrayOf(status.workflows, maxNames, isNamed) &&
    isObject(gauges) &&
    (gauges.stuck === undefined || (gauges.stuck instanceof Map && gauges.stuck.size <= maxNames)) &&
    isArrayOf(loops, maxNames, isNamed) &&
    Number.isFinite(longestTimeoutMs) &&
    Number.isFinite(memoryMb);
  if (!isValid) throw new Error('not a valid state');
  return state as RecordsState;
}

const isNamed = (value: unknown) => isObject(value) && isString(value.name);

/** Operations that run in another process. */
export function remoteOperations(call: (name: OperationName, args: unknown[]) => Promise<unknown>) {
  const operations = operationNames.map((name) => [name, (...args: unknown[]) => call(name, args)]);
  return Object.fromEntries(operations) as RemoteOperations;
}

export function downStatus(
  cleanup: boolean,
  error: string | null,
  workflows: readonly { name: string }[] = [],
) {
  return {
    ...({ database: 'down', paused: false, braked: false, cleanup, error } as const),
    workflows: workflows.map(({ name }) => ({ name, stuck: null, oldest_stuck_seconds: null })),
  };
}

/** 503: no records process can answer. */
export function recordsUnavailable(reason: string): AppError {
  return new AppError('database_unavailable', `records are unavailable: ${reason}`, {
    retryAfterSeconds: 5,
  });
}

/** As long as operations on records may take. */
export const operationTimeoutMs = 15_000;

/** Asks the records process of worker 1; rejects with 503 `database_unavailable` if it does not answer. */
export async function askWorker1(
  channel: Channel,
  name: string,
  args: unknown[],
  timeoutMs = operationTimeoutMs,
): Promise<unknown> {
  try {
    return await channel.call('records', [name, args], timeoutMs);
  } catch (error) {
    throw error instanceof NoAnswer ? recordsUnavailable(`worker 1: ${error.message}`) : error;
  }
}
