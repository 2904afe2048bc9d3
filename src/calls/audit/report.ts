/** What an audit has looked at and found. Lists are bounded, counts are not. */
import { type Finding, isViolation, sentenceOf } from './findings.js';

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
