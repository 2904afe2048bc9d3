/**
 * What a router and its records process say to each other. The channel copies values (structured clone): maps and dates
 * arrive as such, functions do not cross, and errors cross in a form of their own, so that a typed error stays one.
 */

import { AppError, ConfigError, type ErrorCode } from './errors.js';
import type { RecordGauges } from './observe/record-metrics.js';
import type { RecordsConfig, RecordsDesk, RecordsListener, RecordsStatus } from './records-plane.js';
import type { LoopState } from './supervised-loop.js';

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
