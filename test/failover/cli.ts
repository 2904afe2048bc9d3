/** `npm run failover`: failovers of Redis under load, a line per round, and tables at the end. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { nativeAvailable } from '../support/engines.js';
import { failover } from './failover.js';
import { type FaultName, faultNames, type Setting, settings } from './settings.js';
import { roundLine, tables } from './table.js';

const usage = `Usage: npm run failover -- [options]

  --rounds N            failovers per setting (default 20), 10 to 15 s each
  --settings a,b        of plain, wait, report, both (default: all)
  --faults a,b          of kill, stop, partition, planned (default: the first three)
  --agents report|none  whether the pods report their calls (default report)
  --seed N              order and moments of the faults, and the calls (default: any)
  --calls-per-second N  (default 60)
  --pods N              exclusive pods (default 300)
  --json FILE           also write every round as JSON
  --help                this text

Callers ask again for 5 s after an error; with the fault planned they wait for a pod for up to 20 s. Logs and a history file
per setting are in .cache/failover. Ctrl-C ends after the current round, a second one at once.
`;

function wrong(text: string): never {
  process.stderr.write(`failover: ${text}\n\n${usage}`);
  process.exit(2);
}

function numberOf(name: string, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  if (!/^[1-9]\d{0,8}$/.test(text))
    wrong(`--${name} must be a positive integer, not ${JSON.stringify(text)}`);
  return Number(text);
}

function namesOf<T extends string>(name: string, text: string, known: readonly T[]): T[] {
  const names = text.split(',') as T[];
  const unknown = names.find((one) => !known.includes(one));
  if (unknown !== undefined) wrong(`--${name}: ${JSON.stringify(unknown)} is not one of ${known.join(', ')}`);
  return names;
}

function parsed() {
  try {
    const text = { type: 'string' } as const;
    return parseArgs({
      options: {
        ...{ rounds: text, settings: text, faults: text, agents: text, seed: text, json: text, pods: text },
        'calls-per-second': text,
        help: { type: 'boolean', short: 'h' },
      },
    }).values;
  } catch (error) {
    wrong((error as Error).message);
  }
}

async function main(): Promise<number> {
  const values = parsed();
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const known = Object.keys(settings) as Setting[];
  const [agents] = namesOf('agents', values.agents ?? 'report', ['report', 'none']);
  const options = {
    rounds: numberOf('rounds', values.rounds, 20),
    settings: namesOf('settings', values.settings ?? known.join(','), known),
    faults: namesOf<FaultName>('faults', values.faults ?? 'kill,stop,partition', faultNames),
    agents: agents === 'report',
    seed: numberOf('seed', values.seed, 1 + Math.floor(Math.random() * 1e8)),
    callsPerSecond: numberOf('calls-per-second', values['calls-per-second'], 60),
    pods: numberOf('pods', values.pods, 300),
  };
  const available = nativeAvailable();
  if (available !== true) wrong(available);
  const stopping = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.on(name, () => {
      // The second time at once: processes and files are cleaned up on exit.
      if (stopping.signal.aborted) process.exit(130);
      process.stderr.write('\nending after this round (again: at once)\n');
      stopping.abort();
    });
  // The script that started us has ended.
  process.once('disconnect', () => process.exit(130));
  process.channel?.unref();
  const { isTTY } = process.stderr;
  process.stderr.write(`failover: seed ${options.seed}, ${options.rounds} rounds for each setting\n`);
  const clear = isTTY ? '\r\x1b[K' : '';
  const { rounds, verdicts, folder } = await failover({
    ...options,
    signal: stopping.signal,
    onRound: (round) => process.stderr.write(`${clear}${roundLine(round)}\n`),
    onProgress: (line) => isTTY && process.stderr.write(`${clear}${line}`),
  });
  process.stdout.write(`${clear}\n${tables(rounds)}\n`);
  for (const [setting, { requests, violations, double_allocations }] of Object.entries(verdicts)) {
    const found = violations.length - double_allocations;
    process.stdout.write(
      `Independent checker, ${setting}: ${requests} requests, ${double_allocations} double allocations, ${found} other violations\n`,
    );
  }
  process.stderr.write(`logs and histories: ${folder}\n`);
  if (values.json !== undefined)
    writeFileSync(values.json, `${JSON.stringify({ ...options, rounds, verdicts }, undefined, 2)}\n`);
  return stopping.signal.aborted ? 130 : 0;
}

try {
  process.exit(await main());
} catch (error) {
  process.stderr.write(`failover: ${(error as Error).message}\n`);
  process.exit(1);
}
