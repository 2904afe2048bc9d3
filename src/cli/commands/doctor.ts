/** `smart-router doctor`: checks everything it can reach and says what to do. */
import type { Command } from 'commander';
import { type Colour, clean, type Paint } from '../../terminal/text.js';
import { answer, type Cli, describe, readUrl, withAccess } from '../cli.js';
import { Failure } from '../failure.js';
import { count } from '../format.js';

export function doctor(parent: Command, cli: Cli): void {
  // Not describeOperator: an unreachable router or store is a failed check, not exit code 6.
  const described = describe(parent.command('doctor'), {
    summary: 'check the configuration, the store and the router, and say what to do',
    about:
      'Changes nothing. Reads the same environment as `serve`. Checks that cannot run are skipped; only "fail" makes the exit code 1.',
    examples: [
      ['doctor', ''],
      ['doctor --url https://router.example.com', 'with this router'],
      ['doctor --json | jq ".checks[] | select(.status!=\\"ok\\")"', ''],
    ],
  });
  const command = withAccess(described);
  answer(command, cli, async () => {
    const { url, timeout } = command.opts<{ url?: string; timeout: number }>();
    const { examine } = await import('../doctor/examine.js');
    const isNamed = url !== undefined || Boolean(cli.env.SMART_ROUTER_URL?.trim());
    const address = isNamed ? readUrl(url, cli.env) : undefined;
    const checks = await examine(cli.env, cli.clock, address, timeout);
    const failed = checks.filter(({ status }) => status === 'fail').length;
    return {
      document: { checks },
      text: show(checks, cli.output.paint),
      failure: failed > 0 ? new Failure('checks_failed', `${count(failed, 'check')} failed`) : undefined,
    };
  });
}

const colours: Readonly<Record<Check['status'], Colour>> = {
  ok: 'green',
  warn: 'yellow',
  fail: 'red',
  skip: 'dim',
};

function show(checks: readonly Check[], paint: Paint): string {
  const width = Math.max(...checks.map(({ name }) => name.length));
  return checks
    .map(({ name, status, message, hint }) => {
      const end = /[.?!]$/.test(message) ? '' : '.';
      const text = clean(hint === undefined ? message : `${message}${end} ${hint}`);
      return `${paint(colours[status], status.padEnd(4))}  ${name.padEnd(width)}  ${text}\n`;
    })
    .join('');
}

/** One line of `smart-router doctor`. */
export interface Check {
  readonly name: string;
  readonly status: 'ok' | 'warn' | 'fail' | 'skip';
  /** The finding, without a full stop. */
  readonly message: string;
  /** What to do: a sentence. */
  readonly hint?: string;
}

export const ok = (name: string, message: string): Check => ({ name, status: 'ok', message });
export const skip = (name: string, message: string): Check => ({ name, status: 'skip', message });
export const warn = (name: string, message: string, hint: string): Check => ({
  name,
  status: 'warn',
  message,
  hint,
});
export const fail = (name: string, message: string, hint: string): Check => ({
  name,
  status: 'fail',
  message,
  hint,
});
