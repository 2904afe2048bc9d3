/** Logs: JSON lines for machines, or pretty lines for people. Secrets never come this far; a list guards the rest. */
import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino';
import pretty from 'pino-pretty';

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
        // Knows NO_COLOR and TERM=dumb too.
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
  return destination ? pino(json, destination) : pino(json);
}

export const silentLogger: Logger = pino({ level: 'silent' });

/** One line for an error that we expect, with its stack only if it is a surprise. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const code = (error as { code?: unknown }).code;
  const expected = error.name === 'AppError' || error.name === 'EpochRefused';
  return { name: error.name, message: error.message, code, ...(expected ? {} : { stack: error.stack }) };
}
