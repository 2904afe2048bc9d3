/** Logs: JSON lines, or pretty lines for a terminal. Callers log no secrets; a list redacts the rest. */
import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino';
import pretty from 'pino-pretty';
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

/**
 * Writes lines to standard output at once and drops lines that fail: a full disk must not stop a router. Without
 * `flushSync`, because pino calls it for a fatal line, and there it would retry for as long as the disk is full.
 */
function standardOutput(): DestinationStream {
  const output = pino.destination({ fd: 1, sync: true, maxLength: maxUnwrittenBytes });
  output.on('error', () => {});
  return { write: (line) => output.write(line) };
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
