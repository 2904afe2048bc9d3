/**
 * smart-router/client: what telephony code and voice agents import. No dependency but `fetch`.
 *
 * WHAT IT PROMISES
 *   An answer in bounded time. Each attempt has a deadline (2 s), there are at most `retries` + 1 of them,
 *   and a `Retry-After` is obeyed only up to a cap: 14.7 s in all with the defaults, 8.7 s without
 *   Retry-After. With `wait`, a drain may take that much longer.
 *   Repeating is safe. Allocate is idempotent by its SID, renew and release are fenced: an answer that got
 *   lost costs a repeat, never a second pod. Nothing is sent again after a 4xx or `no_pods`.
 *   A full house is not an outage. `no_pods` is the router's answer: it throws `NoPodsError` and never leads
 *   to the fallback URL, where a call would take a pod behind the router's back.
 *   A lost call is noticed. `keepAlive()` renews at a third of the lease, so that two renewals may fail
 *   before the lease runs out; when the router says that the call is gone, `call.lost` aborts.
 *   Nothing here keeps the process alive but a request that somebody awaits.
 *
 * ITS STATES
 *   The breaker:  closed -> open (5 failed attempts in a row) -> half open (after 30 s) -> closed (3 trials
 *   succeeded) or open (one failed). Failures are those of a router that is down: network, timeout, 5xx but
 *   `no_pods` and `store_full`, and an answer that is not the router's. Any other answer shows that it is up.
 *   A call's handle:  live -> releasing, lost, or detached. Only a live one renews.
 *
 * HOW IT FAILS
 *   Redis full: allocate throws `RouterUnavailableError` with code `store_full` at once, or gives the fallback URL;
 *   everything else goes on.
 *   Router down: `RouterUnavailableError`, or the fallback URL for allocate. keepAlive and reporting go on
 *   trying; a lease that ran out meanwhile is revived by the next renew unless its pod was needed.
 *   A release that fails leaves the pod to the lease: taken for up to `LEASE_TTL`, then free by itself; if
 *   the pod reports its calls, for 30 s only.
 *   A timed-out allocate may have taken a pod whose name nobody learnt. The retry finds it; after a fallback,
 *   `release()` of that call lets it go; otherwise the lease does.
 *
 * ITS WEAKNESS
 *   The breaker is per process. Hundreds of short-lived processes each have to find out for themselves.
 *   A renew cannot tell a call that ended from one that the store lost: both are `lost`. A pod that reports
 *   is adopted again after such a loss; where that matters, report, and treat `lost` as a warning until a
 *   report names the call in `conflicts`.
 */
export type { Clock } from '../clock.js';
export type { AttachedCall, Call, FallbackCall, RoutedCall } from './allocated.js';
export type { BackoffSettings } from './backoff.js';
export type { BreakerSettings, BreakerState } from './breaker.js';
export { type AllocateOptions, type AttachRequest, type Client, createClient } from './client.js';
export {
  ApiError,
  CallLostError,
  CallNotFoundError,
  ClientClosedError,
  InvalidArgumentError,
  type LostReason,
  NoPodsError,
  PodReplacedError,
  RouterUnavailableError,
  SmartRouterError,
  StaleFenceError,
  type UnavailableReason,
} from './errors.js';
export type { ClientEvent } from './events.js';
export type {
  ClaimOptions,
  DrainOptions,
  ReleaseOptions,
  ReleaseResult,
  ReportOptions,
  SignalOption,
  UndrainOptions,
} from './operations.js';
export type { AllocateRequest, ClientOptions } from './options.js';
export type { ListCalls, Reporter, ReportingOptions } from './reporter.js';
export type { Allocation, DrainResult, Report } from './wire.js';
