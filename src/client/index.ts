/**
 * @smart-router/client: the library for telephony code and voice agents. Its only dependency is `fetch`. The build copies it
 * to clients/typescript, a package of its own; `smart-router/client` exports it too.
 *
 * GUARANTEES
 *   Bounded time. Each attempt has a deadline (2 s), there are at most `retries` + 1 of them, and a `Retry-After` counts
 *   only up to a cap: 14.7 s in all with the defaults, 8.7 s without Retry-After. With `wait`, an allocate or a drain takes that much longer.
 *   Safe retries. Allocate is idempotent by its SID, renew and release are fenced: a lost response costs a retry, never a
 *   second pod. Nothing is retried after a 4xx (except 429 `too_many_requests`) or a refusal.
 *   A refusal is not an outage: `no_pods`, `queue_full`, `wait_expired` and `merchant_limit` throw `NoPodsError` and never
 *   lead to the fallback URL, where a call would take a pod without the router.
 *   A waiting call keeps its place. An allocate with `wait` polls for at most 10 s at a time and asks again after a lost
 *   connection, also on another replica: the place belongs to the SID.
 *   A lost call is noticed. `keepAlive()` renews at a third of the lease, so that two renewals may fail before it expires;
 *   when the router says that the call has ended, `call.lost` aborts.
 *   Only awaited requests keep the process alive.
 *
 * STATES
 *   The breaker: closed -> open (5 failed attempts in a row) -> half open (after 30 s) -> closed (3 trials succeeded) or
 *   open (one failed). Failures are network errors, timeouts, 5xx except refusals and `store_full`, and responses that are
 *   not the router's. Any other response shows that the router is up. Of long polls that a dying replica cuts at once, one
 *   counts. Background renewals and reports pass an open breaker: a lease must not expire because other requests failed.
 *   The handle of a call: live -> releasing, lost, or detached. Only a live one renews.
 *
 * FAILURES
 *   Redis full: allocate throws `RouterUnavailableError` with code `store_full` at once, or returns the fallback URL; all
 *   other operations work.
 *   Router down: `RouterUnavailableError`, or the fallback URL for allocate. keepAlive and reporting keep trying; the next
 *   renew revives an expired lease unless its pod has another call.
 *   After a failed release the lease frees the pod, within `LEASE_TTL`; if the pod reports its calls, within 30 s.
 *   A timed-out allocate may have taken a pod. The retry finds it; after a fallback, `release()` of that call frees it;
 *   otherwise the lease does.
 *
 * WEAKNESSES
 *   The breaker is per process: each of hundreds of short-lived processes must detect an outage itself.
 *   A renew cannot tell a call that ended from one that the store lost: both are `lost`. After such a loss the router adopts
 *   the calls of pods that report. Where that matters, report, and treat `lost` as a warning until a report names the call
 *   in `conflicts`.
 */
export type { Clock } from '../clock.js';
export type { BreakerSettings, BreakerState } from './breaker.js';
export type { AttachedCall, Call, FallbackCall, RoutedCall } from './call.js';
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
  type Refusal,
  RouterUnavailableError,
  SmartRouterError,
  StaleFenceError,
  StillWaitingError,
  type UnavailableReason,
} from './errors.js';
export type {
  ClaimOptions,
  DrainOptions,
  ReleaseOptions,
  ReleaseResult,
  ReportOptions,
  SignalOption,
  UndrainOptions,
  WaitOptions,
} from './operations.js';
export type { AllocateRequest, BackoffSettings, ClientEvent, ClientOptions, Fetch } from './options.js';
export type { ListCalls, Reporter, ReportingOptions } from './reporter.js';
export type {
  Allocation,
  DrainResult,
  PodState,
  ReleasedPod,
  Renewal,
  Report,
  WaitingPlace,
} from './wire.js';
