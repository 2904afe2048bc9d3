/** What every part of the demo shares (the clock at the demo's speed, the log, work in the background), and all parts. */
import type { Client } from '../client/index.js';
import type { Clock } from '../clock.js';
import type { Cluster } from '../cluster/simulator/cluster.js';
import { messageOf } from '../errors.js';
import type { Actions } from './actions.js';
import type { Agents } from './agents.js';
import type { CallCounts, Callers } from './callers.js';
import type { Engine } from './engine.js';
import type { EventLog } from './event-log.js';
import type { Line, LineKind } from './lines.js';
import type { Operator } from './operator.js';
import type { RecordPlane } from './records/plane.js';
import type { Routers } from './routers.js';
import type { SeededRandom } from './seeded-random.js';
import type { Twilio } from './twilio.js';

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
  /** Polls until `isDone`; resolves to false when the demo stops first. */
  until: (isDone: () => boolean | Promise<boolean>) => Promise<boolean>;
}

/** The parts of the demo, in the order of their start. */
export interface DemoParts {
  counts: CallCounts;
  eventLog: EventLog;
  records: RecordPlane;
  engine: Engine;
  cluster: Cluster;
  routers: Routers;
  client: Client;
  agents: Agents;
  twilio: Twilio;
  callers: Callers;
  operator: Operator;
  random: SeededRandom;
  actions: Actions;
}

/** What one part needs: the context and some of the earlier parts. */
export type Needs<Part extends keyof DemoParts> = DemoContext & Pick<DemoParts, Part>;

const pollMs = 50;

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
    async until(isDone) {
      while (!signal.aborted) {
        if (await isDone()) return true;
        await clock.sleep(pollMs, signal);
      }
      return false;
    },
  };
  return context;
}
