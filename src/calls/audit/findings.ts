/**
 * The findings of an audit, and what to do about each.
 *
 * A violation never occurs in a healthy system: every operation is one atomic step that leaves the store consistent.
 * Pending findings occur in a healthy system for a while, until the next sweep: a lease expired, or an operator changed a
 * key by hand.
 */
export interface Finding {
  kind: FindingKind;
  /** The contradiction, with names. */
  text: string;
  pod?: string;
  call?: string;
  pool?: string;
}

interface Meaning {
  class: 'violation' | 'pending';
  /** What to do, or what repairs it. */
  advice: string;
}

const bySweep = 'the sweep repairs it within CLEANUP_INTERVAL';
const byServe = 'every router repairs it within a second';
const byReconcile =
  'the leader repairs it within RECONCILE_INTERVAL if its source lists the pod; else delete the keys of the pod';
const violation = (advice: string): Meaning => ({ class: 'violation', advice });
const pending = (advice: string): Meaning => ({ class: 'pending', advice });

const meanings = {
  // --- Single keys ---
  unknown_key: pending('no operation reads it; if no newer version wrote it, delete it'),
  wrong_type: violation(
    'its content is unreadable; keep a copy (RENAME), and the leader rebuilds derived keys',
  ),
  no_end: violation('it would never expire; set a TTL with PEXPIRE, or delete it once its call has ended'),
  vanishes: violation('its content would be lost; remove the TTL with PERSIST'),
  // --- Calls and pods ---
  two_calls: violation(
    'not repaired automatically; end the call that the agent does not serve with `smart-router release`',
  ),
  over_limit: violation(
    'not repaired automatically; drain the pod until calls have ended, and keep the event stream',
  ),
  lowered_limit: pending('max_concurrent was or may have been lowered, which ends no call; no action needed'),
  two_pods: violation(
    'the sweep removes the call from the pod that its record does not name, within CLEANUP_INTERVAL',
  ),
  no_record: pending('the sweep ends the call within CLEANUP_INTERVAL, as after a record deleted by hand'),
  orphan_record: violation(
    'the pod may get another call; its next report adopts the call, and `smart-router release` deletes the record',
  ),
  earlier_router: pending('an earlier router left the record; it expires within CALL_INFO_TTL'),
  past_lease: pending('the sweep ends the call within CLEANUP_INTERVAL, unless it is renewed'),
  fence_ahead: violation('the next allocate advances the counter; find out what wrote `fence`'),
  same_fence: violation('a late release of one could end the other; find out what wrote `fence`'),
  broken_record: violation('the record was changed by hand; it is deleted when the call ends'),
  // --- Pods and pools ---
  left_behind: violation('it takes no calls; delete its keys, or let the leader register it again'),
  left_to_expire: pending('it takes no calls; its keys expire'),
  wrong_pool: violation(byReconcile),
  no_such_pool: violation(byReconcile),
  assigned_unregistered: violation(
    'it takes no calls; if the cluster has it, the leader registers it within RECONCILE_INTERVAL, else remove it with SREM',
  ),
  pool_unknown: violation('its pods take no calls; delete its keys, or add it to the configuration again'),
  // --- Derived keys ---
  index_differs: violation(bySweep),
  index_extra: violation('it counts as a live call until its deadline; then the sweep removes it'),
  available_type: violation(
    'its pods take no calls; the sweep rebuilds it within CLEANUP_INTERVAL if the pool is configured',
  ),
  available_stranger: violation(`allocate rejects it; ${bySweep}`),
  available_blocked: violation(`allocate rejects it; ${bySweep}`),
  available_by_hand: pending(`allocate rejects it; ${bySweep}`),
  available_busy: violation(`allocate rejects it; ${bySweep}`),
  available_score: violation(bySweep),
  not_available: pending('the sweep makes it available within CLEANUP_INTERVAL'),
  // --- Waiting calls and limits of merchants ---
  not_handed_over: violation(`a waiting call should have it; ${byServe}`),
  waiting_with_pod: violation('release the call with `smart-router release`; its caller then asks again'),
  not_queued: violation(
    'it gets no pod; release it with `smart-router release`, and its caller enters the queue again',
  ),
  wrong_entry: violation(
    'it is dropped when it is the first of its queue; until then it counts as a waiting call',
  ),
  listed: violation(
    'a pod may go to the wrong call; a router removes the entry within a second, or remove it with ZREM',
  ),
  not_listed: violation(`its calls get no pods; ${byServe}, unless its chain is empty`),
  listed_score: violation(`its calls get pods too early or too late; ${byServe}`),
  over_max_calls: violation(
    'not repaired automatically; the merchant gets no call until it is below its limit',
  ),
  lowered_max_calls: pending('max_calls was or may have been lowered, which ends no call; no action needed'),
  limit_extra: violation(
    'it uses up a place of the merchant; the next allocate at the limit removes it (expected after a roll from 0.1.0)',
  ),
  limit_missing: violation('the merchant may get one call too many; remove the limit and set it again'),
  // --- For operators ---
  mirror: pending(`for operators only; ${bySweep}`),
} as const satisfies Record<string, Meaning>;

export type FindingKind = keyof typeof meanings;

export const findingKinds = Object.keys(meanings) as FindingKind[];

export function isViolation({ kind }: Finding): boolean {
  return meanings[kind].class === 'violation';
}

/** One sentence: the contradiction, and what to do or what repairs it. */
export function sentenceOf({ kind, text }: Finding): string {
  return `${text}: ${meanings[kind].advice}`;
}

/** Per list: as many as a person reads. */
const maxListed = 100;
/** Beyond this number, a contradiction seen from two sides may count twice. */
const maxRemembered = 20_000;

/** As the API returns it. */
export interface AuditReport {
  /** False: the audit timed out or was stopped before it read everything. */
  complete: boolean;
  took_ms: number;
  looked_at: { pools: number; pods: number; calls: number; keys: number };
  violation_count: number;
  violations: ReportedFinding[];
  pending_count: number;
  pending: ReportedFinding[];
}

interface ReportedFinding {
  kind: string;
  pod_name: string | null;
  call_sid: string | null;
  pool: string | null;
  /** The contradiction, and what to do or what repairs it. */
  message: string;
}

export class Findings {
  readonly violations: ReportedFinding[] = [];
  readonly pending: ReportedFinding[] = [];
  violation_count = 0;
  pending_count = 0;
  readonly #seen = new Set<string>();

  add(finding: Finding): void {
    const { kind, pod: pod_name = null, call: call_sid = null, pool = null } = finding;
    const message = sentenceOf(finding);
    // The same contradiction may be seen again later, with other times in its text.
    const timeless = finding.text.replace(/\b\d{10,}\b|\d+ ms/g, '');
    const identity = [kind, pod_name, call_sid, pool, timeless].join(' ');
    if (this.#seen.has(identity)) return;
    if (this.#seen.size < maxRemembered) this.#seen.add(identity);
    const list = isViolation(finding) ? this.violations : this.pending;
    if (isViolation(finding)) this.violation_count += 1;
    else this.pending_count += 1;
    if (list.length < maxListed) list.push({ kind, pod_name, call_sid, pool, message });
  }
}
