import type { BreakerState } from './breaker.js';
import type { LostReason } from './errors.js';
import type { Report } from './wire.js';

/** What happens inside the client, for logs and metrics. Carries call SIDs and pod names, never the key. */
export type ClientEvent =
  /** An attempt failed and another one follows after `delayMs`. */
  | { type: 'retry'; operation: string; attempt: number; delayMs: number; error: unknown }
  | { type: 'breaker'; from: BreakerState; to: BreakerState }
  /** `allocate` gave the fallback URL because the router is down. */
  | { type: 'fallback'; callSid: string; error: unknown }
  | { type: 'renewed'; callSid: string; leaseExpiresAt: Date }
  /** A background renew failed; it is tried again after `retryInMs`. */
  | { type: 'renew_failed'; callSid: string; error: unknown; retryInMs: number }
  | { type: 'lost'; callSid: string; reason: LostReason }
  | { type: 'reported'; pod: string; report: Report }
  /** A background report failed; it is tried again after `retryInMs`. */
  | { type: 'report_failed'; pod: string; error: unknown; retryInMs: number }
  /** One of the caller's own callbacks threw; the client went on. */
  | { type: 'callback_failed'; callback: string; error: unknown };

export type Emit = (event: ClientEvent) => void;

/** A listener that throws must not cost a call its lease. */
export function safeEmit(listener: ((event: ClientEvent) => void) | undefined): Emit {
  return (event) => {
    try {
      listener?.(event);
    } catch {
      // There is nobody left to tell: the listener was the one to be told.
    }
  };
}
