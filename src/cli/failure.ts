/**
 * Failures and exit codes. Every error becomes one Failure: a line for people, a code and an exit code for scripts.
 * Exit codes are stable, like the error codes; docs/cli.md and `smart-router --help` list them.
 */
import { CommanderError } from 'commander';
import { AppError, ConfigError, type ErrorCode, isInstance, messageOf } from '../errors.js';

export const exitCodes = {
  done: 0,
  failed: 1,
  usage: 2,
  noPods: 3,
  notFound: 4,
  conflict: 5,
  unreachable: 6,
  callsStillLive: 7,
  violationsFound: 8,
  interrupted: 130,
} as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

export const exitCodeMeanings: Readonly<Record<ExitCode, string>> = {
  0: 'done',
  1: 'failed or rejected (wrong key, a check of doctor, an error inside the router)',
  2: 'wrong usage, input or configuration',
  3: 'no pod is free',
  4: 'no such call, pod, pool, merchant or workflow, or nothing to confirm',
  5: 'conflict: stale fence, replaced pod, newer version, a tier that cannot change now, or records skipped',
  6: 'the router, its store or the database is unreachable',
  7: 'drain --wait ended with calls still live',
  8: 'audit found violated invariants',
  130: 'interrupted with Ctrl-C',
};

/** Codes of the command line; the others are the router's (src/errors.ts). */
export type CliCode =
  | 'usage'
  | 'configuration'
  | 'unreachable'
  | 'not_a_router'
  | 'pool_not_found'
  | 'calls_still_live'
  | 'violations_found'
  | 'checks_failed'
  | 'records_skipped'
  | 'interrupted'
  | 'failed';

const exits: Readonly<Partial<Record<ErrorCode | CliCode, ExitCode>>> = {
  usage: exitCodes.usage,
  configuration: exitCodes.usage,
  invalid_request: exitCodes.usage,
  payload_too_large: exitCodes.usage,
  no_pods: exitCodes.noPods,
  call_not_found: exitCodes.notFound,
  pod_not_found: exitCodes.notFound,
  merchant_not_found: exitCodes.notFound,
  pool_not_found: exitCodes.notFound,
  nothing_held: exitCodes.notFound,
  workflow_not_found: exitCodes.notFound,
  stale_fence: exitCodes.conflict,
  pod_replaced: exitCodes.conflict,
  version_conflict: exitCodes.conflict,
  tier_conflict: exitCodes.conflict,
  records_skipped: exitCodes.conflict,
  store_unavailable: exitCodes.unreachable,
  store_full: exitCodes.unreachable,
  not_replicated: exitCodes.unreachable,
  database_unavailable: exitCodes.unreachable,
  timeout: exitCodes.unreachable,
  overloaded: exitCodes.unreachable,
  shutting_down: exitCodes.unreachable,
  unreachable: exitCodes.unreachable,
  not_a_router: exitCodes.unreachable,
  calls_still_live: exitCodes.callsStillLive,
  violations_found: exitCodes.violationsFound,
  interrupted: exitCodes.interrupted,
};

/** An unknown code, of a newer router, is a plain failure. */
export function exitCodeOf(code: string): ExitCode {
  return (Object.hasOwn(exits, code) ? exits[code as ErrorCode | CliCode] : undefined) ?? exitCodes.failed;
}

export class Failure extends Error {
  override readonly name = 'Failure';
  readonly exitCode: ExitCode;

  constructor(
    readonly code: CliCode | (string & {}),
    message: string,
    /** Printed one per line after the message. */
    readonly problems: readonly string[] = [],
    options: { cause?: unknown } = {},
  ) {
    super(message, options);
    this.exitCode = exitCodeOf(code);
  }

  /** The fields that --json prints. */
  get fields(): { error: string; code: string; problems?: readonly string[] } {
    const { message: error, code, problems } = this;
    return { error, code, ...(problems.length > 0 ? { problems } : {}) };
  }
}

export function toFailure(error: unknown): Failure {
  if (isInstance(error, Failure)) return error;
  if (isInstance(error, CommanderError)) return new Failure('usage', usageLine(error.message));
  if (isInstance(error, ConfigError)) {
    const [first = '', ...more] = error.problems;
    if (more.length === 0) return new Failure('configuration', first);
    return new Failure(
      'configuration',
      `the configuration has ${error.problems.length} problems:`,
      error.problems,
    );
  }
  if (isInstance(error, AppError)) return new Failure(error.code, error.message, error.details.problems);
  return new Failure(
    'failed',
    `unexpected error: ${oneLine(messageOf(error))} (DEBUG=smart-router shows the stack)`,
    [],
    { cause: error },
  );
}

/** Joins commander's two lines "error: unknown command 'x'" and "(Did you mean y?)". */
function usageLine(message: string): string {
  const [first = '', ...rest] = message.replace(/^error: /, '').split('\n');
  const suggestion = /\(?Did you mean (.*?)\?\)?$/.exec(rest.join(' '))?.[1];
  return suggestion ? `${first}. Did you mean ${suggestion}?` : first;
}

export function oneLine(text: string): string {
  return text.replace(/[\s\p{Cc}]+/gu, ' ').trim();
}
