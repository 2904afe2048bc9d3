/** Log lines of the sidecar, in the format of the router's. Without pino, to save memory. */
import type { Clock } from '../clock.js';

export type Log = (level: 'info' | 'warn', msg: string, fields: Record<string, unknown>) => void;

export function createLog(clock: Clock, write: (line: string) => void): Log {
  return (level, msg, fields) =>
    write(`${JSON.stringify({ level, time: new Date(clock.now()).toISOString(), ...fields, msg })}\n`);
}
