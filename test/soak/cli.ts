/** `npm run soak`: constant load for hours, a line of progress, a table and a picture. */
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { root } from '../chaos/child.js';
import { nativeAvailable } from '../support/engines.js';
import { type Row, tableOf } from './series.js';
import { progressLine, readSamples, soak, writeSummary } from './soak.js';

const usage = `Usage: npm run soak -- [options]

  --hours N         how long (default 2)
  --minutes N       the same in minutes
  --calls N         calls per second (default 40); records are a quarter more
  --pods N          voice agents (default 200)
  --folder PATH     for samples, logs, table and picture (default .cache/soak/<time>)
  --summarise FILE  runs nothing: writes table and picture beside this file of samples
  --help            this text

Exits with 1 when something grows. Ctrl-C ends the run early and writes the table and the picture.
`;

function wrong(text: string): never {
  process.stderr.write(`soak: ${text}\n\n${usage}`);
  process.exit(2);
}

function positive(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,4}(\.\d{1,3})?$/.test(text) || Number(text) === 0)
    wrong(`--${name} must be a number above 0, not ${JSON.stringify(text)}`);
  return Number(text);
}

function told(rows: readonly Row[], folder: string): number {
  process.stdout.write(`${tableOf(rows)}\npicture: ${join(folder, 'soak.svg')}\n`);
  return rows.some(({ verdict }) => verdict.startsWith('grows')) ? 1 : 0;
}

function optionsOf() {
  try {
    const names = ['hours', 'minutes', 'calls', 'pods', 'folder', 'summarise'] as const;
    const texts = Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]));
    return parseArgs({ options: { ...texts, help: { type: 'boolean' as const, short: 'h' } } })
      .values as Partial<Record<(typeof names)[number], string>> & { help?: boolean };
  } catch (error) {
    wrong((error as Error).message);
  }
}

async function main(): Promise<number> {
  const values = optionsOf();
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  if (values.summarise !== undefined) {
    const { header, samples } = readSamples(values.summarise);
    const folder = dirname(values.summarise);
    return told(writeSummary(folder, header, samples), folder);
  }
  if (process.platform !== 'linux') wrong('it reads /proc, so it needs Linux');
  const available = nativeAvailable();
  if (available !== true) wrong(available);
  const hours = positive('hours', values.hours) ?? (positive('minutes', values.minutes) ?? 120) / 60;
  const [callsPerSecond, pods] = [
    positive('calls', values.calls) ?? 40,
    positive('pods', values.pods) ?? 200,
  ];
  const stopping = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.on(name, () => {
      if (stopping.signal.aborted) process.exit(130);
      stopping.abort();
    });
  // The script that started us has ended.
  process.once('disconnect', () => stopping.abort());
  process.channel?.unref();
  const folder =
    values.folder ?? join(root, '.cache', 'soak', new Date().toISOString().replace(/[:.]/g, '-'));
  process.stderr.write(
    `soak: ${Math.round(hours * 60)} minutes, ${callsPerSecond} calls/s, ${pods} pods, in ${folder}\n`,
  );
  const { isTTY } = process.stderr;
  let shownMs = 0;
  const { rows, answers } = await soak({
    ...{ seconds: hours * 3600, folder, callsPerSecond, pods, signal: stopping.signal },
    onSample(sample) {
      if (isTTY) process.stderr.write(`\r\x1b[K${progressLine(sample)}`);
      else if (Date.now() - shownMs > 60_000) {
        shownMs = Date.now();
        process.stderr.write(`${progressLine(sample)}\n`);
      }
    },
  });
  if (isTTY) process.stderr.write('\r\x1b[K');
  process.stdout.write(`answers: ${JSON.stringify(answers)}\n`);
  return told(rows, folder);
}

try {
  process.exit(await main());
} catch (error) {
  process.stderr.write(`soak: ${(error as Error).message}\n`);
  process.exit(1);
}
