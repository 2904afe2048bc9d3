/**
 * Failures and exit codes. Every error becomes one Failure: a line for people, a code and an exit code for scripts.
 * Exit codes are stable, like the error codes; docs/cli.md and `smart-router --help` list them.
 */
import { CommanderError } from 'commander';
import { AppError, ConfigError, type ErrorCode, isInstance, messageOf } from '../errors.js';

/** Codes of the command line; the others are the router's (src/errors.ts). */
type CliCode =
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

export const exitCodeMeanings = {
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
} as const;

export type ExitCode = keyof typeof exitCodeMeanings;

/** All other codes, also those of a newer router, mean 1. */
const exits: Readonly<Partial<Record<ExitCode, readonly (ErrorCode | CliCode)[]>>> = {
  2: ['usage', 'configuration', 'invalid_request', 'payload_too_large'],
  3: ['no_pods'],
  4: [
    'call_not_found',
    'pod_not_found',
    'merchant_not_found',
    'pool_not_found',
    'nothing_held',
    'workflow_not_found',
  ],
  5: ['stale_fence', 'pod_replaced', 'version_conflict', 'tier_conflict', 'records_skipped'],
  6: [
    'store_unavailable',
    'store_full',
    'not_replicated',
    'database_unavailable',
    'timeout',
    'overloaded',
    'shutting_down',
    'unreachable',
    'not_a_router',
  ],
  7: ['calls_still_live'],
  8: ['violations_found'],
  130: ['interrupted'],
};

function exitCodeOf(code: string): ExitCode {
  const found = Object.entries(exits).find(([, codes]) => (codes as readonly string[]).includes(code));
  return found ? (Number(found[0]) as ExitCode) : 1;
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
