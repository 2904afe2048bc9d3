/**
 * What a router and its records process say to each other. The channel copies values (structured clone): maps and dates
 * arrive as such, functions do not cross, and errors cross in a form of their own, so that a typed error stays one.
 */

import { AppError, ConfigError, type ErrorCode, errorCodes } from '../errors.js';
import type { LoopState } from '../loop.js';
import type { RecordGauges } from '../records/metrics.js';
import type { RecordsConfig, RecordsDesk, RecordsListener, RecordsStatus } from './records-plane.js';
import { eventNames } from './records-status.js';

export type DeskCall = keyof RecordsDesk;

export type ToProcess =
  | { type: 'open'; config: RecordsConfig }
  | { type: 'start' }
  | { type: 'call'; id: number; name: DeskCall; args: unknown[] }
  | { type: 'stop' };

/** What holds in the records process at one moment. */
export interface RecordsState {
  status: RecordsStatus;
  gauges: RecordGauges;
  loops: LoopState[];
  memoryMb: number;
}

export type RecordsEvent = [name: keyof RecordsListener, args: unknown[]];

/** Sent four times a second, so silence means that the event loop is blocked. */
export interface Report {
  /** Undefined before `opened`. */
  state: RecordsState | undefined;
  /** Since the last report, in their order. */
  events: RecordsEvent[];
  /** Lines of its log, as JSON. */
  lines: string[];
  /** Events and lines that did not fit. */
  dropped: number;
}

export type FromProcess =
  /** Everything is read that needs no server. */
  | { type: 'opened'; longestTimeoutMs: number }
  /** It cannot open, and ends. */
  | { type: 'refused'; error: SentError }
  | ({ type: 'report' } & Report)
  | { type: 'answer'; id: number; value: unknown }
  | { type: 'failure'; id: number; error: SentError };

const listenerNames = new Set<unknown>([...eventNames, 'loopCrashed', 'storeAnswered']);

/** Throws for a value that is not a message. `value` of an answer and `args` of an event are not checked. */
export function readMessage(message: unknown): FromProcess {
  if (!isObject(message)) throw new Error('it is not an object');
  const { type, id, error, longestTimeoutMs } = message;
  const isValid =
    (type === 'opened' && Number.isFinite(longestTimeoutMs)) ||
    (type === 'refused' && isSentError(error)) ||
    (type === 'report' && isReport(message)) ||
    (type === 'answer' && Number.isInteger(id)) ||
    (type === 'failure' && Number.isInteger(id) && isSentError(error));
  if (!isValid) throw new Error(`it is not a valid ${String(type).slice(0, 20)}`);
  return message as FromProcess;
}

function isReport({ state, events, lines, dropped }: Record<string, unknown>): boolean {
  return (
    (state === undefined || isState(state)) &&
    isArrayOf(
      events,
      (event) => Array.isArray(event) && listenerNames.has(event[0]) && Array.isArray(event[1]),
    ) &&
    isArrayOf(lines, (line) => typeof line === 'string') &&
    Number.isInteger(dropped)
  );
}

function isState(state: unknown): boolean {
  if (!isObject(state)) return false;
  const { status, gauges, loops, memoryMb } = state;
  return (
    isObject(status) &&
    isArrayOf(status.workflows, isNamed) &&
    isObject(gauges) &&
    (gauges.stuck === undefined || gauges.stuck instanceof Map) &&
    isArrayOf(loops, isNamed) &&
    Number.isFinite(memoryMb)
  );
}

function isSentError(error: unknown): boolean {
  if (!isObject(error)) return false;
  const { name, message, code, problems } = error;
  return (
    typeof name === 'string' &&
    typeof message === 'string' &&
    (code === undefined || Object.hasOwn(errorCodes, String(code))) &&
    (problems === undefined || isArrayOf(problems, (problem) => typeof problem === 'string'))
  );
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;
const isNamed = (value: unknown) => isObject(value) && typeof value.name === 'string';
const isArrayOf = (value: unknown, isItem: (item: unknown) => boolean) =>
  Array.isArray(value) && value.every(isItem);

interface SentError {
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
