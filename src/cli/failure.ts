/** Everything that can go wrong becomes one Failure: a line for people, a code and an exit code for scripts. */
import { CommanderError } from 'commander';
import { AppError, ConfigError, isInstance, messageOf } from '../errors.js';
import { type CliCode, type ExitCode, exitCodeOf } from './exit-codes.js';

export class Failure extends Error {
  override readonly name = 'Failure';
  readonly exitCode: ExitCode;

  constructor(
    readonly code: CliCode | (string & {}),
    message: string,
    /** Each on a line of its own; the message then only introduces them. */
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
    `something unexpected went wrong: ${oneLine(messageOf(error))} (DEBUG=smart-router shows where)`,
    [],
    { cause: error },
  );
}

/** Commander's "error: unknown command 'x'" and "(Did you mean y?)", two lines, as one sentence. */
function usageLine(message: string): string {
  const [first = '', ...rest] = message.replace(/^error: /, '').split('\n');
  const suggestion = /\(?Did you mean (.*?)\?\)?$/.exec(rest.join(' '))?.[1];
  return suggestion ? `${first}. Did you mean ${suggestion}?` : first;
}

export function oneLine(text: string): string {
  return text.replace(/[\s\p{Cc}]+/gu, ' ').trim();
}
