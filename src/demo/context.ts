/** What every part of the demo shares: the clock at the demo's speed, the log, and work in the background. */
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Line, LineKind } from './lines.js';

export interface DemoContext {
  clock: Clock;
  /** Aborted when the demo stops. */
  signal: AbortSignal;
  /** Shows one line, until the demo stops. */
  log: (kind: LineKind, text: string, about?: Pick<Line, 'call' | 'pod'>) => void;
  /** Milliseconds for seconds of the demo, which pass faster with DEMO_SPEED. */
  ms: (seconds: number, minMs?: number) => number;
  /** In seconds of the demo. */
  sleep: (seconds: number) => Promise<void>;
  /** Runs `work` in the background after a pause in seconds of the demo; an error becomes one line. */
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
}

export function createContext(
  clock: Clock,
  speed: number,
  signal: AbortSignal,
  show: (line: Line) => void,
): DemoContext {
  const context: DemoContext = {
    clock,
    signal,
    log(kind, text, about = {}) {
      if (!signal.aborted) show({ at: new Date(clock.now()).toISOString(), kind, text, ...about });
    },
    ms: (seconds, minMs = 0) => Math.max(minMs, (seconds * 1000) / speed),
    sleep: (seconds) => clock.sleep(context.ms(seconds), signal),
    later(afterSeconds, work) {
      const run = async () => {
        await context.sleep(afterSeconds);
        if (!signal.aborted) await work();
      };
      run().catch((error: unknown) => context.log('do', `demo error: ${messageOf(error)}`));
    },
  };
  return context;
}
