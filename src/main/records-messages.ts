/**
 * The messages between a router and its records process. The channel copies values (structured clone): maps and dates
 * are kept, functions cannot be sent, and errors are converted, so that a typed error keeps its type.
 */
import { AppError, ConfigError, type ErrorCode, errorCodes } from '../errors.js';
import type { LoopState } from '../loop.js';
import type { OperationName, RecordsStatus } from '../records/admin.js';
import type { RecordGauges } from '../records/metrics.js';
import { recordEvents } from '../records/observer.js';
import type { RecordsConfig, RecordsListener } from './records-plane.js';

export type ToProcess =
  | { type: 'open'; config: RecordsConfig }
  | { type: 'start' }
  | { type: 'call'; id: number; name: OperationName; args: unknown[] }
  | { type: 'stop' };

/** The state of the records process at one moment. */
export interface RecordsState {
  status: RecordsStatus;
  gauges: RecordGauges;
  loops: LoopState[];
  memoryMb: number;
}

export type RecordsEvent = [name: keyof RecordsListener, args: unknown[]];

/** Sent four times a second: missing reports mean that the event loop is blocked. */
export interface Report {
  /** Undefined before `opened`. */
  state: RecordsState | undefined;
  /** Since the last report, in order. */
  events: RecordsEvent[];
  /** Log lines, as JSON. */
  lines: string[];
  /** Events and lines that did not fit. */
  dropped: number;
}

export type FromProcess =
  /** The configuration and the workflows are loaded. */
  | { type: 'opened'; longestTimeoutMs: number }
  /** The process cannot open, and ends. */
  | { type: 'refused'; error: SentError }
  | ({ type: 'report' } & Report)
  | { type: 'answer'; id: number; value: unknown }
  | { type: 'failure'; id: number; error: SentError };

/** About a second of the busiest loop. */
const maxEvents = 20_000;
const maxLines = 1000;
/** Workflows, loops and problems. */
const maxNames = 1000;
const maxLabelLength = 128;

/**
 * Collects events and log lines for the next report. A report is sent only after the previous one has been written;
 * events and lines beyond the next one's limits are dropped and counted.
 */
export class ReportBuffer {
  readonly #send: (report: Report) => Promise<void>;
  #events: RecordsEvent[] = [];
  #lines: string[] = [];
  #dropped = 0;
  #sent: Promise<void> = Promise.resolve();

  /** `send` resolves when the report has been written. */
  constructor(send: (report: Report) => Promise<void>) {
    this.#send = send;
  }

  addEvent(name: RecordsEvent[0], args: unknown[]): void {
    if (this.#events.length < maxEvents) this.#events.push([name, args]);
    else this.#dropped += 1;
  }

  addLine(text: string): void {
    if (this.#lines.length < maxLines) this.#lines.push(text);
    else this.#dropped += 1;
  }

  /** Resolves when everything up to now has been written. */
  flush(state: () => RecordsState | undefined): Promise<void> {
    this.#sent = this.#sent.then(() => {
      const report = { state: state(), events: this.#events, lines: this.#lines, dropped: this.#dropped };
      this.#events = [];
      this.#lines = [];
      this.#dropped = 0;
      return this.#send(report);
    });
    return this.#sent;
  }
}

const eventNames = new Set<unknown>([...recordEvents, 'loopCrashed', 'storeAnswered']);

/** Throws if the value is not a message. Does not check the `value` of an answer and the `args` of an event. */
export function readMessage(message: unknown): FromProcess {
  if (!isObject(message)) throw new Error('not an object');
  const { type, id, error, longestTimeoutMs } = message;
  const isValid =
    (type === 'opened' && Number.isFinite(longestTimeoutMs)) ||
    (type === 'refused' && isSentError(error)) ||
    (type === 'report' && isReport(message)) ||
    (type === 'answer' && Number.isInteger(id)) ||
    (type === 'failure' && Number.isInteger(id) && isSentError(error));
  if (!isValid) throw new Error(`not a valid ${String(type).slice(0, 20)}`);
  return message as FromProcess;
}

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

function isReport({ state, events, lines, dropped }: Record<string, unknown>): boolean {
  const isEvent = (event: unknown) =>
    Array.isArray(event) && eventNames.has(event[0]) && Array.isArray(event[1]);
  return (
    (state === undefined || isState(state)) &&
    isArrayOf(events, maxEvents, isEvent) &&
    isArrayOf(lines, maxLines, isString) &&
    Number.isInteger(dropped)
  );
}

function isState(state: unknown): boolean {
  if (!isObject(state)) return false;
  const { status, gauges, loops, memoryMb } = state;
  return (
    isObject(status) &&
    isArrayOf(status.workflows, maxNames, isNamed) &&
    isObject(gauges) &&
    (gauges.stuck === undefined || (gauges.stuck instanceof Map && gauges.stuck.size <= maxNames)) &&
    isArrayOf(loops, maxNames, isNamed) &&
    Number.isFinite(memoryMb)
  );
}

function isSentError(error: unknown): boolean {
  if (!isObject(error)) return false;
  const { name, message, code, problems } = error;
  return (
    isString(name) &&
    isString(message) &&
    (code === undefined || Object.hasOwn(errorCodes, String(code))) &&
    (problems === undefined || isArrayOf(problems, maxNames, isString))
  );
}

const isString = (value: unknown) => typeof value === 'string';
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;
const isNamed = (value: unknown) => isObject(value) && isString(value.name);
/** Checks the length first: a message of 60 bytes can hold an array with four billion holes. */
const isArrayOf = (value: unknown, max: number, isItem: (item: unknown) => boolean) =>
  Array.isArray(value) && value.length <= max && value.every(isItem);

export interface SentError {
  name: string;
  message: string;
  stack: string | undefined;
  /** Of an AppError. */
  code?: ErrorCode;
  retryAfterSeconds?: number | undefined;
  /** Of an AppError or a ConfigError. */
  problems?: readonly string[] | undefined;
}

export function sentError(error: unknown): SentError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error), stack: undefined };
  const { name, message, stack } = error;
  if (error instanceof ConfigError) return { name, message, stack, problems: error.problems };
  if (!(error instanceof AppError)) return { name, message, stack };
  const { retryAfterSeconds, problems } = error.details;
  return { name, message, stack, code: error.code, retryAfterSeconds, problems };
}

export function receivedError({ name, message, stack, code, retryAfterSeconds, problems }: SentError): Error {
  if (code !== undefined) {
    return new AppError(code, message, {
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      ...(problems === undefined ? {} : { problems }),
    });
  }
  if (name === 'ConfigError') return new ConfigError(problems ?? [message]);
  const error = Object.assign(new Error(message), { name });
  if (stack !== undefined) error.stack = stack;
  return error;
}

/** 503: no records process can answer. */
export function recordsUnavailable(reason: string): AppError {
  return new AppError('database_unavailable', `records are unavailable: ${reason}`, {
    retryAfterSeconds: 5,
  });
}
