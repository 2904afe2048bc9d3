/** `npm run chaos`: faults for some minutes, a line of progress, a table, and 1 as exit code when something broke. */
import { parseArgs } from 'node:util';
import { nativeAvailable } from '../support/engines.js';
import { chaos, type Outcome, type Progress } from './chaos.js';

const usage = `Usage: npm run chaos -- [options]

  --minutes N  of faults (default 5); starting and healing take about one more
  --seed N     which faults, at which moments (default: any)
  --sentinel   Redis as master and replica with a Sentinel, and failovers that lose writes
  --json       one line of JSON at the end
  --help       this text

Exits with 1 when a promise was broken; logs and histories are then kept in .cache/chaos. Ctrl-C ends the faults early,
and a second one everything at once.
`;

function wrong(text: string): never {
  process.stderr.write(`chaos: ${text}\n\n${usage}`);
  process.exit(2);
}

function numberOf(name: string, text: string | undefined, fallback: number, pattern: RegExp): number {
  if (text === undefined) return fallback;
  if (!pattern.test(text)) wrong(`--${name} must be a number, not ${JSON.stringify(text)}`);
  return Number(text);
}

function progressLine({ seconds, calls, faults, violations }: Progress): string {
  const time = `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;
  return `${time}  ${calls} calls, ${faults} faults, ${violations} violations`;
}

function table(outcome: Outcome): string {
  const { faults, violations, kept } = outcome;
  const total = Object.values(faults).reduce((sum, n) => sum + n, 0);
  const rows: [string, string | number][] = [
    ['seed', outcome.seed],
    ['minutes', outcome.minutes.toFixed(1)],
    ['calls', outcome.calls],
    ['  allocated', outcome.allocated],
    ['  refused (no pod free)', outcome.refused],
    ['  waited for a pod', outcome.waited],
    ['  failed (no answer, or an error)', outcome.failed],
    ['events replayed', outcome.eventsReplayed],
    ['looks at all keys', outcome.looks],
    ['audits by the leader', outcome.audits],
    ['records done', outcome.recordsDone],
    [
      'well again after',
      outcome.healedInSeconds === undefined ? 'never' : `${outcome.healedInSeconds.toFixed(1)} s`,
    ],
    ['faults', total],
    ...Object.entries(faults)
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([name, n]): [string, number] => [`  ${name}`, n]),
    ['requests judged by the checker', outcome.checked.requests],
    ['  without a reply', outcome.checked.lost_replies],
    ['  violations', outcome.checked.violations.length],
    ['  excused by lost writes', outcome.checked.excused.length],
    ['violations', violations.length],
  ];
  const width = Math.max(...rows.map(([name]) => name.length)) + 2;
  const shown = violations.slice(0, 20).map((text) => `  ${text}`);
  return [
    ...rows.map(([name, value]) => `${name.padEnd(width)}${String(value).padStart(8)}`),
    ...shown,
    ...(violations.length > shown.length ? [`  and ${violations.length - shown.length} more`] : []),
    `requests and replies: ${outcome.historyFile}`,
    ...(kept === undefined ? [] : [`logs and histories: ${kept}`]),
    '',
  ].join('\n');
}

async function main(): Promise<number> {
  let values: { minutes?: string; seed?: string; sentinel?: boolean; json?: boolean; help?: boolean };
  try {
    ({ values } = parseArgs({
      options: {
        minutes: { type: 'string' },
        seed: { type: 'string' },
        sentinel: { type: 'boolean' },
        json: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    }));
  } catch (error) {
    wrong((error as Error).message);
  }
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const minutes = numberOf('minutes', values.minutes, 5, /^\d{1,4}(\.\d{1,3})?$/);
  if (minutes === 0) wrong('--minutes must be more than 0');
  const seed = numberOf('seed', values.seed, Math.floor(Math.random() * 1e9), /^\d{1,9}$/);
  const available = nativeAvailable();
  if (available !== true) wrong(available);
  const stopping = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.on(name, () => {
      // The second time at once: processes and files are cleaned up on exit.
      if (stopping.signal.aborted) process.exit(130);
      process.stderr.write('\nending the faults and healing: up to 90 s (again: at once)\n');
      stopping.abort();
    });
  // The script that started us has ended.
  process.once('disconnect', () => stopping.abort());
  process.channel?.unref();
  const { isTTY } = process.stderr;
  let toldMs = 0;
  process.stderr.write(
    `chaos: seed ${seed}, ${minutes} minutes${values.sentinel ? ', with a Sentinel' : ''}\n`,
  );
  const outcome = await chaos({
    ...{ seed, minutes, sentinel: values.sentinel === true, signal: stopping.signal },
    onProgress(progress) {
      if (isTTY) process.stderr.write(`\r\x1b[K${progressLine(progress)}`);
      else if (Date.now() - toldMs > 15_000) {
        toldMs = Date.now();
        process.stderr.write(`${progressLine(progress)}\n`);
      }
    },
  });
  if (isTTY) process.stderr.write('\r\x1b[K');
  process.stdout.write(values.json ? `${JSON.stringify(outcome)}\n` : table(outcome));
  return outcome.violations.length > 0 ? 1 : stopping.signal.aborted ? 130 : 0;
}

try {
  process.exit(await main());
} catch (error) {
  process.stderr.write(`chaos: ${(error as Error).message}\n`);
  process.exit(1);
}
