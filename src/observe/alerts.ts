/**
 * The alert engine of a process: evaluates the conditions of calls and records, and notifies the receivers.
 *
 * Guarantees: a receiver gets a condition once when it starts, again after a long time, and once when it has been over
 * for two minutes. Notification runs in the background with retries: it never blocks or fails the observed work. Keys are
 * the same on all replicas.
 *
 * States of a condition: idle, pending (it must last), firing, clearing (it must be over for a while), idle. They are in
 * memory. A process that starts sends PagerDuty a resolve for every shared condition that does not hold, in case its
 * predecessor could not. Only the active replica, the leader, sends shared conditions to a webhook; the next active one sends
 * those that still hold once more. If a worker of a group leads, the one with the records process sends those of records.
 * Each process sends its own (not shared) conditions itself.
 *
 * Weakness: a process that crashes leaves its own conditions open at the receiver; one that stops resolves them.
 */
import type { Clock } from '../clock.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import { type AlertMessage, type AlertSink, Delivery } from './alert-delivery.js';
import type { Condition, ConditionName, Severity } from './alert-rules.js';
import { CallAlerts } from './call-alerts.js';
import type { Logger } from './log.js';
import { RecordAlerts } from './record-alerts.js';

export interface AlertsOptions {
  sinks: readonly AlertSink[];
  /** The name of this replica. */
  source: string;
  clock: Clock;
  log: Logger;
  intervalMs: number;
  /** Whether this process sends a shared condition to receivers that do not deduplicate. */
  isActive(condition: ConditionName): boolean;
  /** How long a sweep may run without a finished round, by loop name. */
  stallsAfterMs: ReadonlyMap<string, number>;
  onCrash(loop: string): void;
}

/** As `GET /api/v1/alerts` shows it. */
export interface ActiveAlert {
  name: string;
  severity: Severity;
  summary: string;
  since: string;
  workflow: string | null;
  runbook: string;
}

type AlertCounts = Record<
  'conditions' | 'active' | 'triggered' | 'reminded' | 'resolved' | 'undelivered',
  number
>;

interface State {
  condition: Condition;
  /** As it last held: a condition that clears would otherwise be shown with a count of 0. */
  shown: Condition;
  pendingSinceMs: number | undefined;
  startedAtMs: number | undefined;
  clearSinceMs: number | undefined;
  /** When each receiver was last notified, by the monotonic clock. */
  notifiedMs: Map<Delivery, number>;
  /** A previous process may have triggered it and died before the resolve. */
  mayBeOpen: boolean;
}

/** A condition that holds again sooner never ended. */
const clearAfterMs = 120_000;
const stopTimeoutMs = 3000;
const severities: readonly Severity[] = ['warning', 'critical', 'page'];

export class Alerts {
  readonly records: RecordAlerts;
  readonly calls: CallAlerts;
  readonly #options: AlertsOptions;
  readonly #states = new Map<string, State>();
  readonly #deliveries: readonly Delivery[];
  readonly #loop: SupervisedLoop;
  #stopped: Promise<void> | undefined;

  constructor(options: AlertsOptions) {
    const { sinks, clock, log, stallsAfterMs } = options;
    this.#options = options;
    this.records = new RecordAlerts(clock);
    this.calls = new CallAlerts(stallsAfterMs);
    this.#deliveries = sinks.map((sink) => new Delivery(sink, clock, log));
    this.#loop = new SupervisedLoop({
      ...options,
      name: 'alerts',
      runOnce: () => this.runOnce(),
      // At the start there are no values yet.
      runAtStart: false,
    });
  }

  get active(): ActiveAlert[] {
    return [...this.#states.values()].flatMap(({ shown, startedAtMs }) => {
      if (startedAtMs === undefined) return [];
      const { name, severity, summary, workflow = null, runbook } = shown;
      return [{ name, severity, summary, since: new Date(startedAtMs).toISOString(), workflow, runbook }];
    });
  }

  /** Without receivers the check of the history evaluates often enough, and no loop runs. */
  get loops(): LoopState[] {
    return this.#deliveries.length === 0 ? [] : [this.#loop.state];
  }

  start(): void {
    if (this.#deliveries.length > 0) this.#loop.start();
  }

  /** Resolves the conditions of this process, and gives deliveries a few seconds. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    await this.#loop.stop();
    for (const state of this.#states.values()) {
      if (state.startedAtMs !== undefined && !state.condition.isShared) this.#resolve(state);
    }
    await Promise.all(this.#deliveries.map((delivery) => delivery.stop(stopTimeoutMs)));
  }

  /** Evaluates every condition; notifications are queued when this resolves, not delivered. */
  async runOnce(): Promise<AlertCounts> {
    const counts = { conditions: 0, active: 0, triggered: 0, reminded: 0, resolved: 0, undelivered: 0 };
    const nowMs = this.#options.clock.monotonic();
    for (const condition of [...this.records.conditions(nowMs), ...this.calls.conditions()]) {
      counts.conditions += 1;
      const state = this.#states.get(condition.key) ?? idle(condition);
      state.condition = condition;
      if (state.startedAtMs === undefined || condition.holds(true) === true) state.shown = condition;
      this.#states.set(condition.key, state);
      if (state.startedAtMs === undefined) this.#evaluateIdle(state, counts);
      else this.#evaluateFiring(state, counts);
    }
    for (const state of this.#states.values()) {
      if (state.startedAtMs === undefined) continue;
      counts.active += 1;
      if (this.#notify(state, nowMs)) counts.reminded += 1;
    }
    counts.undelivered = this.#deliveries.reduce((sum, { waiting }) => sum + waiting, 0);
    return counts;
  }

  #evaluateIdle(state: State, counts: AlertCounts): void {
    const { condition } = state;
    const { atMs, pendingMs, name, severity, summary, details, runbook } = condition;
    const holds = condition.holds(false);
    if (holds === undefined) return;
    if (state.mayBeOpen && condition.holds(true) === false) {
      state.mayBeOpen = false;
      this.#sendResolve(
        state,
        this.#deliveries.filter(({ sink }) => sink.deduplicates),
      );
    }
    state.pendingSinceMs = holds ? (state.pendingSinceMs ?? atMs) : undefined;
    if (state.pendingSinceMs === undefined || atMs - state.pendingSinceMs < pendingMs) return;
    state.pendingSinceMs = undefined;
    state.startedAtMs = this.#options.clock.now();
    state.notifiedMs.clear();
    state.mayBeOpen = false;
    counts.triggered += 1;
    const fields = { condition: name, severity, summary, details, runbook };
    this.#options.log[severity === 'warning' ? 'warn' : 'error'](fields, 'alert firing');
  }

  #evaluateFiring(state: State, counts: AlertCounts): void {
    const { condition } = state;
    const holds = condition.holds(true);
    if (holds === undefined) return;
    state.clearSinceMs = holds ? undefined : (state.clearSinceMs ?? condition.atMs);
    if (state.clearSinceMs === undefined || condition.atMs - state.clearSinceMs < clearAfterMs) return;
    this.#options.log.info({ condition: condition.name, workflow: condition.workflow }, 'alert resolved');
    counts.resolved += 1;
    this.#resolve(state);
  }

  /** Whether a receiver gets a reminder. */
  #notify(state: State, nowMs: number): boolean {
    let isReminder = false;
    for (const delivery of this.#deliveries) {
      if (!this.#accepts(delivery, state.condition)) {
        // Another replica is active. If this one becomes active, it sends the condition again.
        state.notifiedMs.delete(delivery);
        continue;
      }
      const notifiedMs = state.notifiedMs.get(delivery);
      if (notifiedMs !== undefined && nowMs - notifiedMs < delivery.sink.remindAfterMs) continue;
      state.notifiedMs.set(delivery, nowMs);
      delivery.add(this.#message('trigger', state));
      isReminder ||= notifiedMs !== undefined;
    }
    return isReminder;
  }

  #resolve(state: State): void {
    this.#sendResolve(state, this.#deliveries);
    state.startedAtMs = undefined;
    state.clearSinceMs = undefined;
  }

  #sendResolve(state: State, deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries)
      if (this.#accepts(delivery, state.condition)) delivery.add(this.#message('resolve', state));
  }

  #accepts({ sink }: Delivery, { name, severity, isShared }: Condition): boolean {
    if (severities.indexOf(severity) < severities.indexOf(sink.minSeverity)) return false;
    return sink.deduplicates || !isShared || this.#options.isActive(name);
  }

  #message(event: AlertMessage['event'], { condition, shown, startedAtMs }: State): AlertMessage {
    const { source, clock } = this.#options;
    const atMs = clock.now();
    const about = event === 'trigger' ? shown : condition;
    return { event, condition: about, source, startedAtMs: startedAtMs ?? atMs, atMs };
  }
}

function idle(condition: Condition): State {
  return {
    condition,
    shown: condition,
    pendingSinceMs: undefined,
    startedAtMs: undefined,
    clearSinceMs: undefined,
    notifiedMs: new Map(),
    mayBeOpen: condition.isShared,
  };
}
