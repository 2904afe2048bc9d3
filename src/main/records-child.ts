/**
 * The records process: runs the record plane for a router, which started it (records-process.ts).
 *
 * It ends when the router says so, and at once when the router has ended, however that happened: a thread waits at a pipe
 * that breaks with the router, because a handler may block the event loop here. Signals of a terminal or a service
 * manager reach both processes and are ignored here: the router decides when this process ends.
 */
import { writeFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { systemClock as clock } from '../clock.js';
import { createLogger } from '../observe/log.js';
import { RecordsChannel } from './records-channel.js';
import {
  type DeskCall,
  type FromProcess,
  type RecordsState,
  sentError,
  type ToProcess,
} from './records-messages.js';
import { prepareRecords, type RecordsConfig, type RecordsPlane } from './records-plane.js';
import { Reports } from './records-reports.js';
import { eventsTo } from './records-status.js';

const reportEveryMs = 250;
const lastWordsMs = 1000;

const guard = `
const { Socket } = require('node:net');
new Socket({ fd: 4 }).on('error', () => {}).on('close', () => process.kill(process.pid, 'SIGKILL')).resume();
`;
new Worker(guard, { eval: true, execArgv: [] }).unref();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => {});
// A machine that is out of memory ends this process before the router. Only Linux has the file.
writeFile('/proc/self/oom_score_adj', '500').catch(() => {});

const reports = new Reports((report) => send({ type: 'report', ...report }));
let plane: RecordsPlane | undefined;

const channel = new RecordsChannel(
  new Socket({ fd: 3 }),
  (message) => hear(message as ToProcess),
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
  const destination = { write: (line: string) => reports.line(line) };
  const log = createLogger({ level: config.logLevel, format: 'json', destination });
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'uncaught error: the records process ends');
    clock.after(lastWordsMs, () => process.exit(1));
    void reports.flush(stateNow).then(() => process.exit(1));
  });
  try {
    const listener = {
      ...eventsTo((name, args) => reports.event(name, args)),
      loopCrashed: (...args: [string]) => reports.event('loopCrashed', args),
      storeAnswered: (...args: unknown[]) => reports.event('storeAnswered', args),
    };
    const opened = await prepareRecords(config, { clock, log, listener });
    plane = opened;
    await send({ type: 'opened', longestTimeoutMs: opened.longestTimeoutMs });
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
  const message = await call(name, args).then(
    (value): FromProcess => ({ type: 'answer', id, value }),
    (error: unknown): FromProcess => ({ type: 'failure', id, error: sentError(error) }),
  );
  // The router knows what was counted and logged before it gets the answer.
  await reports.flush(stateNow);
  await send(message);
}

async function call(name: DeskCall, args: unknown[]): Promise<unknown> {
  if (!plane) throw new Error('a call before the records process has opened');
  return (plane.desk()[name] as (...all: unknown[]) => Promise<unknown>)(...args);
}

async function stop(): Promise<void> {
  await plane?.stop();
  await reports.flush(stateNow);
  process.exit(0);
}

function hear(message: ToProcess): void {
  if (message.type === 'open') void open(message.config);
  else if (message.type === 'start') plane?.start();
  else if (message.type === 'call') void answer(message);
  else void stop();
}
