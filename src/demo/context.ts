/** What every part of the demo shares. */
import type { Clock } from '../clock.js';
import type { LineKind } from './lines.js';

export interface DemoContext {
  clock: Clock;
  /** 10 makes a minute of the demo last six seconds. */
  speed: number;
  /** Aborted when the demo stops. */
  signal: AbortSignal;
  /** Shows one line, until the demo stops. */
  log: (kind: LineKind, text: string) => void;
  /** In seconds of the demo. */
  sleep: (seconds: number) => Promise<void>;
  /** Runs `work` in the background after a pause in seconds of the demo; an error becomes one line. */
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
}
