/**
 * Alerts from inside the process: for installations without Prometheus, and for what only the process knows.
 *
 * Promises: a condition is told once when it begins, again after a long while, and once when it has been over for two
 * minutes. Telling never blocks or fails the work that is watched: it happens in the background, with retries. Keys are
 * the same on all replicas.
 *
 * States of a condition: quiet, pending (it has to last), told, clearing (it has to be over for a while), quiet. They
 * are in memory. A process that starts tells PagerDuty the end of every shared condition that it finds over, in case the
 * process before it could not. What replicas see alike (`shared`) only the active one sends to a webhook; when another
 * becomes active it tells once more what lasts. What concerns one process (`local`) that process tells itself.
 *
 * Weakness: a process that dies with a local condition leaves it open; one that stops ends it.
 */
import type { Clock } from '../clock.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { RecordObserver } from '../records/observer.js';
import { Delivery } from './alerts-delivery.js';
import {
  type AlertThresholds,
  type Condition,
  conditions,
  defaultThresholds,
  type Severity,
} from './alerts-rules.js';
import { type AlertSample, Samples } from './alerts-samples.js';
import type { AlertMessage, AlertSink } from './alerts-sinks.js';
import type { Logger } from './log.js';

export type { AlertThresholds, Severity } from './alerts-rules.js';
export type { AlertSample } from './alerts-samples.js';
export { type AlertSink, pagerDutySink, webhookSink } from './alerts-sinks.js';

export interface AlertsOptions {
  sinks: readonly AlertSink[];
  /** Who tells: the name of this replica. */
  source: string;
  clock: Clock;
  log: Logger;
  /** Default: 15 s. */
  intervalMs?: number;
  thresholds?: Partial<AlertThresholds>;
  /** Whether this replica tells what all replicas see. Default: always. */
  isActive?: () => boolean;
  /** Conditions beside those of records and removals. */
  more?: (nowMs: number) => readonly Condition[];
  onCrash?: () => void;
}

export interface ActiveAlert {
  key: string;
  condition: string;
  workflow: string | undefined;
  severity: Severity;
  summary: string;
  startedAtMs: number;
  runbook: string;
}

export interface AlertCounts extends Record<string, number> {
  conditions: number;
  active: number;
  triggered: number;
  reminded: number;
  resolved: number;
  undelivered: number;
}

interface State {
  condition: Condition;
  /** As it last held: one that clears, or is not known, would be shown as active with a count of 0. */
  shown: Condition;
  pendingSinceMs: number | undefined;
  startedAtMs: number | undefined;
  clearSinceMs: number | undefined;
  /** By receiver: when it was last told, by the monotonic clock. */
  toldMs: Map<Delivery, number>;
  /** A process before this one may have told it, and gone without telling the end. */
  mayBeOpen: boolean;
}

/** A condition that comes back sooner has never been away. */
const clearAfterMs = 120_000;
const stopPatienceMs = 3000;
const ranks: readonly Severity[] = ['warning', 'critical', 'page'];

export class Alerts {
  readonly #options: AlertsOptions;
  readonly #thresholds: AlertThresholds;
  readonly #samples = new Samples();
  readonly #states = new Map<string, State>();
  readonly #deliveries: readonly Delivery[];
  readonly #loop: SupervisedLoop;

  constructor(options: AlertsOptions) {
    const { clock, log, onCrash, intervalMs = 15_000 } = options;
    this.#options = options;
    this.#thresholds = { ...defaultThresholds, ...options.thresholds };
    this.#deliveries = options.sinks.map((sink) => new Delivery(sink, clock, log));
    this.#loop = new SupervisedLoop({
      name: 'alerts',
      intervalMs,
      clock,
      log,
      runOnce: () => this.runOnce(),
      // At the very start nothing has been seen yet.
      runAtStart: false,
      ...(onCrash ? { onCrash } : {}),
    });
  }

  /** For the record loop and its recovery. */
  readonly observer: RecordObserver = {
    stuck: (workflow, records, oldestSeconds) =>
      this.observe({ kind: 'stuck', workflow, records, oldestSeconds }),
    session: (outcome) =>
      this.observe({ kind: 'sessions', ok: outcome === 'ok' ? 1 : 0, failed: outcome === 'ok' ? 0 : 1 }),
    zombie: (workflow) => this.observe({ kind: 'zombie', workflow }),
    breaker: (isOpen) => this.observe({ kind: 'breaker', isOpen }),
    massStall: (isHolding) => this.observe({ kind: 'brake', isHolding }),
  };

  observe(sample: AlertSample): void {
    this.#samples.observe(sample, this.#options.clock.monotonic());
  }

  get active(): ActiveAlert[] {
    return [...this.#states.values()].flatMap(({ shown, startedAtMs }) => {
      const { key, name, workflow, severity, summary, runbook } = shown;
      return startedAtMs === undefined
        ? []
        : [{ key, condition: name, workflow, severity, summary, startedAtMs, runbook }];
    });
  }

  get loops(): LoopState[] {
    return [this.#loop.state];
  }

  start(): void {
    this.#loop.start();
  }

  /** What this process alone had to tell is over with it. */
  async stop(): Promise<void> {
    await this.#loop.stop();
    for (const state of this.#states.values()) {
      if (state.startedAtMs !== undefined && state.condition.scope === 'local') this.#tellEnd(state);
    }
    await Promise.all(this.#deliveries.map((delivery) => delivery.stop(stopPatienceMs)));
  }

  /** Judges every condition now; what has to be told is on its way when this resolves, not there. */
  async runOnce(): Promise<AlertCounts> {
    const counts = { conditions: 0, active: 0, triggered: 0, reminded: 0, resolved: 0, undelivered: 0 };
    const nowMs = this.#options.clock.monotonic();
    const more = this.#options.more?.(nowMs) ?? [];
    for (const condition of [...conditions(this.#samples, this.#thresholds, nowMs), ...more]) {
      counts.conditions += 1;
      const state = this.#states.get(condition.key) ?? quiet(condition);
      state.condition = condition;
      if (state.startedAtMs === undefined || condition.holds(true) === true) state.shown = condition;
      this.#states.set(condition.key, state);
      if (state.startedAtMs === undefined) this.#judgeQuiet(state, nowMs, counts);
      else this.#judgeTold(state, nowMs, counts);
    }
    for (const state of this.#states.values()) {
      if (state.startedAtMs === undefined) continue;
      counts.active += 1;
      if (this.#tell(state, nowMs)) counts.reminded += 1;
    }
    counts.undelivered = this.#deliveries.reduce((sum, { waiting }) => sum + waiting, 0);
    return counts;
  }

  #judgeQuiet(state: State, nowMs: number, counts: AlertCounts): void {
    const { condition } = state;
    const holds = condition.holds(false);
    if (holds === undefined) return;
    if (state.mayBeOpen && condition.holds(true) === false) this.#clearAtStart(state);
    state.pendingSinceMs = holds ? (state.pendingSinceMs ?? nowMs) : undefined;
    if (state.pendingSinceMs === undefined || nowMs - state.pendingSinceMs < condition.forMs) return;
    state.pendingSinceMs = undefined;
    state.startedAtMs = this.#options.clock.now();
    state.toldMs.clear();
    state.mayBeOpen = false;
    counts.triggered += 1;
    const { severity, summary, name } = condition;
    const fields = { condition: name, severity, details: condition.details, runbook: condition.runbook };
    this.#options.log[severity === 'warning' ? 'warn' : 'error'](fields, `alert: ${summary}`);
  }

  #judgeTold(state: State, nowMs: number, counts: AlertCounts): void {
    const holds = state.condition.holds(true);
    if (holds === undefined) return;
    state.clearSinceMs = holds ? undefined : (state.clearSinceMs ?? nowMs);
    if (state.clearSinceMs === undefined || nowMs - state.clearSinceMs < clearAfterMs) return;
    this.#options.log.info(
      { condition: state.condition.name, workflow: state.condition.workflow },
      'an alert is over',
    );
    counts.resolved += 1;
    this.#tellEnd(state);
  }

  /** Whether somebody was told once more. */
  #tell(state: State, nowMs: number): boolean {
    let isReminder = false;
    for (const delivery of this.#deliveries) {
      if (!this.#accepts(delivery, state.condition)) {
        // Another replica is the active one; should we become it, we tell once more.
        state.toldMs.delete(delivery);
        continue;
      }
      const toldMs = state.toldMs.get(delivery);
      if (toldMs !== undefined && nowMs - toldMs < delivery.sink.remindAfterMs) continue;
      state.toldMs.set(delivery, nowMs);
      delivery.add(this.#message('trigger', state));
      isReminder ||= toldMs !== undefined;
    }
    return isReminder;
  }

  #tellEnd(state: State): void {
    for (const delivery of this.#deliveries) {
      if (this.#accepts(delivery, state.condition)) delivery.add(this.#message('resolve', state));
    }
    state.startedAtMs = undefined;
    state.clearSinceMs = undefined;
  }

  #clearAtStart(state: State): void {
    state.mayBeOpen = false;
    for (const delivery of this.#deliveries) {
      if (delivery.sink.folds && this.#accepts(delivery, state.condition))
        delivery.add(this.#message('resolve', state));
    }
  }

  #accepts({ sink }: Delivery, { severity, scope }: Condition): boolean {
    if (ranks.indexOf(severity) < ranks.indexOf(sink.least)) return false;
    return sink.folds || scope === 'local' || (this.#options.isActive?.() ?? true);
  }

  #message(event: AlertMessage['event'], { condition, shown, startedAtMs }: State): AlertMessage {
    const { key, name, workflow, severity, summary, details, runbook } =
      event === 'trigger' ? shown : condition;
    const { source, clock } = this.#options;
    const atMs = clock.now();
    return {
      event,
      key,
      condition: name,
      workflow,
      severity,
      summary,
      source,
      startedAtMs: startedAtMs ?? atMs,
      atMs,
      details,
      runbook,
    };
  }
}

function quiet(condition: Condition): State {
  return {
    condition,
    shown: condition,
    pendingSinceMs: undefined,
    startedAtMs: undefined,
    clearSinceMs: undefined,
    toldMs: new Map(),
    mayBeOpen: condition.scope === 'shared',
  };
}
