/** `smart-router doctor`: checks everything it can reach and says what to do. */
import { type Colour, clean, paint } from '../../terminal/text.js';
import { keyNote, type RouterOptions, readUrl, routerOptions } from '../access.js';
import { command } from '../cli.js';
import { Failure } from '../failure.js';
import { count } from '../format.js';

/** Not a routerCommand: an unreachable router or store is a failed check, not exit code 6. */
export const doctor = command<RouterOptions>({
  name: 'doctor',
  summary: 'check the configuration, the store and the router, and say what to do',
  about:
    'Changes nothing. Reads the same environment as `serve`. Checks that cannot run are skipped; only "fail" makes the exit code 1.',
  examples: [
    ['doctor', ''],
    ['doctor --url https://router.example.com', 'with this router'],
    ['doctor --json | jq ".checks[] | select(.status!=\\"ok\\")"', ''],
  ],
  options: routerOptions,
  notes: [keyNote],
  async run({ cli: { env, clock }, options: { url, timeout } }) {
    const { examine } = await import('../doctor/examine.js');
    const isNamed = url !== undefined || Boolean(env.SMART_ROUTER_URL?.trim());
    const checks = await examine(env, clock, isNamed ? readUrl(url, env) : undefined, timeout);
    const failed = checks.filter(({ status }) => status === 'fail').length;
    return {
      document: { checks },
      text: show(checks),
      failure: failed > 0 ? new Failure('checks_failed', `${count(failed, 'check')} failed`) : undefined,
    };
  },
});

const colours: Readonly<Record<Check['status'], Colour>> = {
  ok: 'green',
  warn: 'yellow',
  fail: 'red',
  skip: 'dim',
};

function show(checks: readonly Check[]): string {
  const width = Math.max(...checks.map(({ name }) => name.length));
  return checks
    .map(({ name, status, message, hint }) => {
      const end = /[.?!]$/.test(message) ? '' : '.';
      const text = clean(hint === undefined ? message : `${message}${end} ${hint}`);
      return `${paint(colours[status], status.padEnd(4))}  ${name.padEnd(width)}  ${text}\n`;
    })
    .join('');
}

export interface Check {
  readonly name: string;
  readonly status: 'ok' | 'warn' | 'fail' | 'skip';
  /** The finding, without a full stop. */
  readonly message: string;
  /** What to do: a sentence. */
  readonly hint?: string;
}

const check =
  (status: Check['status']) =>
  (name: string, message: string, hint?: string): Check => ({ name, status, message, ...(hint && { hint }) });
export const ok = check('ok');
export const skip = check('skip');
export const warn = check('warn');
export const fail = check('fail');

/** `text` is the finding in both cases. */
export const warnUnless = (isGood: boolean, name: string, text: string, hint: string): Check =>
  isGood ? ok(name, text) : warn(name, text, hint);
/** The message of `ok`, unless there is a problem. */
export const failIf = (problem: string | undefined, name: string, text: string, hint: string): Check =>
  problem === undefined ? ok(name, text) : fail(name, problem, hint);
