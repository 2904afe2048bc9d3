/**
 * The entry point of the records process: runs the record plane for the router that started it (records-process.ts).
 *
 * It ends when the router says so, and at once when the router has ended: a thread waits at a pipe that breaks with the
 * router, because a handler may block the event loop here. Signals of a terminal or a service manager reach both
 * processes and are ignored here: the router decides when this process ends.
 */
import { writeFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { systemClock as clock, stopSignals } from '../clock.js';
import { createLogger } from '../observe/log.js';
import type { OperationName } from '../records/admin.js';
import { forwardEvents } from '../records/observer.js';
import { Channel } from './channel.js';
import { Plane, type RecordsConfig } from './records-plane.js';
import { type RecordsState, ReportBuffer } from './records-report.js';

const reportEveryMs = 250;
const lastReportMs = 1000;

const guard = `
const { Socket } = require('node:net');
new Socket({ fd: 4 }).on('error', () => {}).on('close', () => process.kill(process.pid, 'SIGKILL')).resume();
`;
new Worker(guard, { eval: true, execArgv: [] }).unref();
for (const signal of stopSignals) process.on(signal, () => {});
// If the machine runs out of memory, this process ends before the router. Only Linux has the file.
writeFile('/proc/self/oom_score_adj', '500').catch(() => {});

const reports = new ReportBuffer((collected) =>
  channel.notify('report', { state: stateNow(), ...collected }),
);
let plane: Plane | undefined;

function stateNow(): RecordsState | undefined {
  const memoryMb = Math.round(process.memoryUsage.rss() / 1024 ** 2);
  if (!plane) return undefined;
  const { loops, longestTimeoutMs } = plane;
  return { status: plane.status(), gauges: plane.gauges(), loops, longestTimeoutMs, memoryMb };
}

async function open(config: RecordsConfig): Promise<RecordsState | undefined> {
  const destination = { write: (line: string) => reports.addLine(line) };
  const log = createLogger({ level: config.logLevel, format: 'json', destination });
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'uncaught error: records process ends');
    clock.after(lastReportMs, () => process.exit(1));
    void reports.flush().then(() => process.exit(1));
  });
  const listener = {
    ...forwardEvents((name, args) => reports.addEvent(name, args)),
    loopCrashed: (...args: [string]) => reports.addEvent('loopCrashed', args),
    storeAnswered: (...args: unknown[]) => reports.addEvent('storeAnswered', args),
  };
  plane = await Plane.create(config, { clock, log, listener });
  void reportForever();
  return stateNow();
}

async function reportForever(): Promise<never> {
  for (;;) {
    await clock.sleep(reportEveryMs);
    await reports.flush();
  }
}

async function operate(name: OperationName, args: unknown[]): Promise<unknown> {
  try {
    const operations = plane?.operations() as Record<OperationName, (...all: unknown[]) => Promise<unknown>>;
    return await operations[name](...args);
  } finally {
    // The router gets the counts and log lines of an operation before its answer.
    await reports.flush();
  }
}

async function stop(): Promise<void> {
  await plane?.stop();
  await reports.flush();
  process.exit(0);
}

const channel = new Channel(new Socket({ fd: 3 }), {
  clock,
  handlers: { open, start: () => plane?.start(), operate, stop },
  onError: (error) => {
    throw error;
  },
});
