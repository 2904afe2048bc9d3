/**
 * The receivers of alerts (a webhook, and PagerDuty's Events API v2), and the delivery to them.
 *
 * Messages to one receiver are sent in sequence, in the background. A failed one is retried after 1, 2, 4 ... 60 s until
 * the process stops. Of several messages about one condition only the last is kept, so the queue is never longer than
 * the number of conditions. A message that the receiver rejects permanently is dropped and logged; the next reminder is
 * another try.
 */
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Condition, Severity } from './alert-rules.js';
import type { Logger } from './log.js';
import { DeliveryError, parseAddress, post } from './webhook.js';

export interface AlertMessage {
  event: 'trigger' | 'resolve';
  condition: Condition;
  source: string;
  startedAtMs: number;
  atMs: number;
}

export interface AlertSink {
  readonly name: string;
  readonly minSeverity: Severity;
  /** While a condition lasts, it is sent again after this. */
  readonly remindAfterMs: number;
  /**
   * True: the receiver merges messages with the same key and ignores the resolve of an unknown key, so every replica
   * sends. False: only the active replica sends shared conditions.
   */
  readonly deduplicates: boolean;
  /** Rejects with a DeliveryError. */
  send(message: AlertMessage, signal: AbortSignal): Promise<void>;
}

const hourMs = 3_600_000;
const firstBackoffMs = 1000;
const maxBackoffMs = 60_000;

/** With a secret, the messages are signed. */
export function webhookSink(to: { url: string; secret?: string | undefined; clock: Clock }): AlertSink {
  const { secret, clock } = to;
  const url = parseAddress(to.url, 'the address of the alert webhook');
  return {
    name: 'webhook',
    minSeverity: 'warning',
    remindAfterMs: 4 * hourMs,
    deduplicates: false,
    send: (message, signal) => post({ url, body: webhookBody(message), secret, clock, signal }),
  };
}

function webhookBody({ event, condition, source, startedAtMs, atMs }: AlertMessage): object {
  const { key, name, workflow, severity, summary, details, runbook } = condition;
  return {
    event,
    dedup_key: key,
    condition: name,
    workflow: workflow ?? null,
    severity,
    // Chat tools show this field.
    text: event === 'trigger' ? `[${severity}] ${summary}` : `[resolved] ${summary}`,
    summary,
    source,
    started_at: new Date(startedAtMs).toISOString(),
    at: new Date(atMs).toISOString(),
    details,
    runbook,
  };
}

const maxSummaryLength = 1024;

/** `url` is the Events API v2 of the account's region. */
export function pagerDutySink(to: {
  url: string;
  routingKey: string;
  minSeverity: Severity;
  clock: Clock;
}): AlertSink {
  const { routingKey, minSeverity, clock } = to;
  const url = parseAddress(to.url, 'the address of PagerDuty');
  return {
    name: 'pagerduty',
    minSeverity,
    // PagerDuty adds a reminder to the open alert without a new page.
    remindAfterMs: hourMs / 4,
    deduplicates: true,
    send: (message, signal) => post({ url, body: pagerDutyBody(message, routingKey), clock, signal }),
  };
}

function pagerDutyBody({ event, condition, source, atMs }: AlertMessage, routingKey: string): object {
  const { key, name, workflow, severity, summary, details, runbook } = condition;
  const envelope = { routing_key: routingKey, event_action: event, dedup_key: key };
  if (event === 'resolve') return envelope;
  return {
    ...envelope,
    client: 'Smart Router',
    payload: {
      summary: summary.slice(0, maxSummaryLength),
      source,
      severity: severity === 'page' ? 'critical' : severity,
      timestamp: new Date(atMs).toISOString(),
      component: workflow ?? 'smart-router',
      class: name,
      custom_details: { ...details, runbook },
    },
  };
}

export class Delivery {
  readonly #waiting = new Map<string, AlertMessage>();
  readonly #stopping = new AbortController();
  #sending: Promise<void> | undefined;
  #failures = 0;

  constructor(
    readonly sink: AlertSink,
    readonly clock: Clock,
    readonly log: Logger,
  ) {}

  get waiting(): number {
    return this.#waiting.size;
  }

  add(message: AlertMessage): void {
    // To the end of the queue.
    this.#waiting.delete(message.condition.key);
    this.#waiting.set(message.condition.key, message);
    this.#sending ??= this.#send();
  }

  /** Gives queued messages `timeoutMs` more, then gives up. */
  async stop(timeoutMs: number): Promise<void> {
    const cancel = this.clock.after(timeoutMs, () => this.#stopping.abort());
    await this.#sending;
    cancel();
    this.#stopping.abort();
    if (this.#waiting.size > 0)
      this.log.warn({ to: this.sink.name, alerts: this.#waiting.size }, 'alerts not delivered before stop');
  }

  async #send(): Promise<void> {
    const { signal } = this.#stopping;
    // Never in the turn of the caller, who only queues.
    await Promise.resolve();
    while (!signal.aborted) {
      const [message] = this.#waiting.values();
      if (!message) break;
      const pauseMs = await this.#try(message, signal);
      if (pauseMs > 0) await this.clock.sleep(pauseMs, signal);
    }
    this.#sending = undefined;
  }

  /** Resolves to the pause before the next try. */
  async #try(message: AlertMessage, signal: AbortSignal): Promise<number> {
    const { key, name } = message.condition;
    const done = () => {
      // Unless a newer message has replaced it.
      if (this.#waiting.get(key) === message) this.#waiting.delete(key);
    };
    try {
      await this.sink.send(message, signal);
      done();
      this.#failures = 0;
      return 0;
    } catch (error) {
      const { isTemporary, retryAfterMs } =
        error instanceof DeliveryError ? error : { isTemporary: true, retryAfterMs: 0 };
      const fields = { to: this.sink.name, condition: name, reason: messageOf(error) };
      if (!isTemporary) {
        done();
        this.log.error(fields, 'alert rejected by its receiver and dropped; check its address and key');
        return 0;
      }
      if (!signal.aborted) this.log.warn(fields, 'alert delivery failed; retrying');
      this.#failures += 1;
      const backoffMs = Math.min(firstBackoffMs * 2 ** (this.#failures - 1), maxBackoffMs);
      return Math.max(retryAfterMs, backoffMs * (1 - 0.2 * this.clock.random()));
    }
  }
}
