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
import { stopSignals } from '../abort.js';
import { systemClock as clock } from '../clock.js';
import { createLogger } from '../observe/log.js';
import { forwardEvents } from '../records/observer.js';
import { RecordsChannel } from './records-channel.js';
import {
  type FromProcess,
  type RecordsState,
  ReportBuffer,
  sentError,
  type ToProcess,
} from './records-messages.js';
import { Plane, type RecordsConfig } from './records-plane.js';

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

const reports = new ReportBuffer((report) => send({ type: 'report', ...report }));
let plane: Plane | undefined;

const channel = new RecordsChannel(
  new Socket({ fd: 3 }),
  (message) => handle(message as ToProcess),
  (error) => {
    throw error;
  },
);
const send = (message: FromProcess) => channel.send(message);

function stateNow(): RecordsState | undefined {
  const memoryMb = Math.round(process.memoryUsage.rss() / 1024 ** 2);
  return plane && { status: plane.status(), gauges: plane.gauges(), loops: plane.loops, memoryMb };
}

async function open(config: RecordsConfig): Promise<void> {
  const destination = { write: (line: string) => reports.addLine(line) };
  const log = createLogger({ level: config.logLevel, format: 'json', destination });
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'uncaught error: records process ends');
    clock.after(lastReportMs, () => process.exit(1));
    void reports.flush(stateNow).then(() => process.exit(1));
  });
  try {
    const listener = {
      ...forwardEvents((name, args) => reports.addEvent(name, args)),
      loopCrashed: (...args: [string]) => reports.addEvent('loopCrashed', args),
      storeAnswered: (...args: unknown[]) => reports.addEvent('storeAnswered', args),
    };
    plane = await Plane.create(config, { clock, log, listener });
    await send({ type: 'opened', longestTimeoutMs: plane.longestTimeoutMs });
  } catch (error) {
    await send({ type: 'refused', error: sentError(error) });
    process.exit(1);
  }
  for (;;) {
    await reports.flush(stateNow);
    await clock.sleep(reportEveryMs);
  }
}

async function answer({ id, name, args }: Extract<ToProcess, { type: 'call' }>): Promise<void> {
  let message: FromProcess;
  try {
    if (!plane) throw new Error('call before the records process has opened');
    const operation = plane.operations()[name] as (...all: unknown[]) => Promise<unknown>;
    message = { type: 'answer', id, value: await operation(...args) };
  } catch (error) {
    message = { type: 'failure', id, error: sentError(error) };
  }
  // The router gets the counts and log lines of an operation before its answer.
  await reports.flush(stateNow);
  await send(message);
}

async function stop(): Promise<void> {
  await plane?.stop();
  await reports.flush(stateNow);
  process.exit(0);
}

function handle(message: ToProcess): void {
  if (message.type === 'open') void open(message.config);
  else if (message.type === 'start') plane?.start();
  else if (message.type === 'call') void answer(message);
  else void stop();
}
