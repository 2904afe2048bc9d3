/** Logs: JSON lines, or pretty lines for a terminal. Callers log no secrets; a list redacts the rest. */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino';
import pretty from 'pino-pretty';
import { systemClock } from '../clock.js';
import { messageOf } from '../errors.js';

export type Logger = PinoLogger;

export interface LogOptions {
  level: string;
  format: 'json' | 'pretty';
  /** Default: standard output. */
  destination?: DestinationStream;
}

const redact = {
  paths: [
    'authorization',
    '*.authorization',
    'headers.authorization',
    'cookie',
    '*.cookie',
    'apiKey',
    'adminKey',
    'token',
    '*.token',
    'From',
    'To',
  ],
  censor: '********',
};

export function createLogger({ level, format, destination }: LogOptions): Logger {
  const options = { level, redact, base: null, serializers: { err: describeError } };
  if (format === 'pretty') {
    return pino(
      options,
      pretty({
        // Respects NO_COLOR and TERM=dumb.
        colorize: process.stdout.isTTY === true && process.stdout.hasColors(),
        ignore: 'pid,hostname',
        translateTime: 'HH:MM:ss',
        ...(destination ? { destination } : {}),
      }),
    );
  }
  const json = {
    ...options,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return pino(json, destination ?? standardOutput());
}

const maxUnwrittenBytes = 1024 ** 2;
const retryEveryMs = 20;

/**
 * Writes lines to standard output at once. Lines that cannot be written are dropped: neither a full disk nor a reader of a
 * pipe that stalls may stop a router. Of such a reader, up to 1 MiB is kept for when it reads again.
 *
 * It opens a pipe or terminal a second time, because whether a write blocks belongs to the open file, which the shell and other
 * processes may share. A socket cannot be opened; it gets pino's asynchronous writes, which lose lines if the process is killed.
 */
function standardOutput(): DestinationStream {
  let fd: number;
  try {
    // A file never blocks, and standard error may be the same one: opened twice, each would overwrite the other.
    fd = fstatSync(1).isFile()
      ? 1
      : openSync('/proc/self/fd/1', constants.O_WRONLY | constants.O_APPEND | constants.O_NONBLOCK);
  } catch {
    const output = pino.destination({ fd: 1, sync: false, maxLength: maxUnwrittenBytes });
    output.on('error', () => {});
    return { write: (line) => output.write(line) };
  }
  const unwritten: Buffer[] = [];
  let unwrittenBytes = 0;
  let isWaiting = false;
  const flush = () => {
    try {
      for (let first = unwritten[0]; first !== undefined; first = unwritten[0]) {
        const count = writeSync(fd, first);
        unwrittenBytes -= count;
        if (count === first.length) unwritten.shift();
        else unwritten[0] = first.subarray(count);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') {
        unwritten.length = 0;
        unwrittenBytes = 0;
      }
    }
    if (unwritten.length === 0 || isWaiting) return;
    isWaiting = true;
    systemClock.after(
      retryEveryMs,
      () => {
        isWaiting = false;
        flush();
      },
      { unref: true },
    );
  };
  return {
    write: (line) => {
      const bytes = Buffer.from(line);
      if (unwrittenBytes + bytes.length > maxUnwrittenBytes) return;
      unwritten.push(bytes);
      unwrittenBytes += bytes.length;
      if (!isWaiting) flush();
    },
  };
}

export const silentLogger: Logger = pino({ level: 'silent' });

const expectedErrors = new Set(['AppError', 'ConfigError', 'EpochRefused', 'SessionError']);

/** One line for an expected error; an unexpected one has its stack. */
function describeError(error: unknown): unknown {
  const message = messageOf(error);
  try {
    if (!(error instanceof Error)) return { message };
    const { name, code, stack } = error as NodeJS.ErrnoException;
    return { name, message, code, ...(expectedErrors.has(name) ? {} : { stack }) };
  } catch {
    // A Proxy or a getter that throws.
    return { message };
  }
}
