/**
 * What an audit can find, and what follows from each.
 *
 * A violation is what a healthy system never shows, not even for a moment: every operation is one step of the store,
 * and each leaves it right. Pending is what a healthy system may show for a while: time has passed and the sweep has
 * not come by yet, or an operator did by hand what operators may do, and the sweep draws the conclusion.
 */
export interface Finding {
  kind: FindingKind;
  /** What contradicts what, by name. */
  text: string;
  pod?: string;
  call?: string;
  pool?: string;
}

interface Meaning {
  class: 'violation' | 'pending';
  /** What to do, or who repairs it. */
  advice: string;
}

const bySweep = 'the sweep repairs it within CLEANUP_INTERVAL';
const byReconcile =
  'the leader repairs it within RECONCILE_INTERVAL if its source lists the pod; else delete the keys of the pod';
const violation = (advice: string): Meaning => ({ class: 'violation', advice });
const pending = (advice: string): Meaning => ({ class: 'pending', advice });

const meanings = {
  // --- Keys by themselves ---
  unknown_key: pending('no operation reads it; if no newer version wrote it, delete it'),
  wrong_type: violation(
    'what it describes is not known; keep a copy (RENAME), and the leader builds what it can anew',
  ),
  no_end: violation(
    'it would stay for ever; give it a time with PEXPIRE, or delete it once its call has ended',
  ),
  vanishes: violation('what it holds would be lost; take the time away with PERSIST'),
  // --- Calls and pods ---
  two_calls: violation(
    'nobody repairs it; end the call that the agent does not serve with `smart-router release`',
  ),
  over_limit: violation('nobody repairs it; drain the pod until calls have ended, and keep the event stream'),
  lowered_limit: pending(
    'max_concurrent was lowered or may have been, which cuts no call; they end by themselves',
  ),
  two_pods: violation(
    'the sweep takes away what the record of the call does not name, within CLEANUP_INTERVAL',
  ),
  no_record: pending('the sweep ends the call within CLEANUP_INTERVAL, as after a record deleted by hand'),
  orphan_record: violation(
    'the pod may get another call; its next report takes the call back, and `smart-router release` deletes the record',
  ),
  earlier_router: pending('an earlier router left the record; it ends with its time, within CALL_INFO_TTL'),
  past_lease: pending('the sweep ends the call within CLEANUP_INTERVAL, unless somebody renews it'),
  fence_ahead: violation('the next allocate moves the counter on; look who has written `fence`'),
  same_fence: violation('a late release of one could end the other; look who has written `fence`'),
  broken_record: violation('the record was changed; it goes when the call ends'),
  // --- Pods and pools ---
  left_behind: violation('no call can get it; delete its keys, or let the leader register it again'),
  left_to_expire: pending('no call can get it; what is left ends by itself'),
  wrong_pool: violation(byReconcile),
  no_such_pool: violation(byReconcile),
  assigned_unregistered: violation(
    'no call can get it; if the cluster has it the leader registers it within RECONCILE_INTERVAL, else take it out with SREM',
  ),
  pool_unknown: violation('no call can get its pods; delete its keys, or give it back to the configuration'),
  // --- What is derived ---
  index_differs: violation(bySweep),
  index_extra: violation('it counts as a live call until its time is over; then the sweep takes it out'),
  available_type: violation(
    'no call can get its pods; the sweep builds it anew within CLEANUP_INTERVAL if the pool is configured',
  ),
  available_stranger: violation(`allocate does not believe it; ${bySweep}`),
  available_blocked: violation(`allocate does not believe it; ${bySweep}`),
  available_by_hand: pending(`allocate does not believe it; ${bySweep}`),
  available_busy: violation(`allocate does not believe it; ${bySweep}`),
  available_score: violation(bySweep),
  not_available: pending('the sweep puts it back within CLEANUP_INTERVAL'),
  mirror: pending(`only people read it; ${bySweep}`),
} as const satisfies Record<string, Meaning>;

export type FindingKind = keyof typeof meanings;

export const findingKinds = Object.keys(meanings) as FindingKind[];

export function isViolation({ kind }: Finding): boolean {
  return meanings[kind].class === 'violation';
}

/** One sentence: what contradicts what, and what to do or who repairs it. */
export function sentenceOf({ kind, text }: Finding): string {
  return `${text}: ${meanings[kind].advice}`;
}

/** As many of each list as a person reads. */
export const mostListed = 100;
/** Beyond that many the same thing, seen from two sides, may be counted twice. */
const mostRemembered = 20_000;

export interface AuditReport {
  /** False: it ran out of time or was stopped, and has not seen everything. */
  complete: boolean;
  tookMs: number;
  pools: number;
  pods: number;
  calls: number;
  keys: number;
  violationCount: number;
  violations: ReportedFinding[];
  pendingCount: number;
  pending: ReportedFinding[];
}

export interface ReportedFinding {
  kind: string;
  pod: string | null;
  call: string | null;
  pool: string | null;
  /** What contradicts what, and what to do or who repairs it. */
  message: string;
}

export class Findings {
  readonly violations: ReportedFinding[] = [];
  readonly pending: ReportedFinding[] = [];
  violationCount = 0;
  pendingCount = 0;
  readonly #seen = new Set<string>();

  add(finding: Finding): void {
    const { kind, pod = null, call = null, pool = null } = finding;
    const message = sentenceOf(finding);
    // The same thing seen again, perhaps a moment later and with other times in it.
    const timeless = finding.text.replace(/\b\d{10,}\b|\d+ ms/g, '');
    const identity = [kind, pod, call, pool, timeless].join(' ');
    if (this.#seen.has(identity)) return;
    if (this.#seen.size < mostRemembered) this.#seen.add(identity);
    const list = isViolation(finding) ? this.violations : this.pending;
    if (isViolation(finding)) this.violationCount += 1;
    else this.pendingCount += 1;
    if (list.length < mostListed) list.push({ kind, pod, call, pool, message });
  }
}
