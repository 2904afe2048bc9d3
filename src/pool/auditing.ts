/**
 * The leader's audit: every so often it asks whether the calls and pods in the store contradict each other, and tells
 * when they do. It repairs nothing: what can be repaired the sweep repairs, and the rest is for a person to look at.
 * A store that does not answer ends the round; the last count stays until the next one.
 */
import type { Auditor } from '../calls/audit/auditor.js';
import type { Logger } from '../observe/log.js';

/** A broken store has thousands of them, and the first few say it all; `smart-router audit` lists more. */
const mostLogged = 10;

export interface AuditCounts extends Record<string, number> {
  pods: number;
  calls: number;
  violations: number;
  pending: number;
}

export interface AuditingOptions {
  auditor: Pick<Auditor, 'audit'>;
  log: Logger;
  onAudited?: (violations: number) => void;
}

export class Auditing {
  constructor(readonly options: AuditingOptions) {}

  async runOnce(signal: AbortSignal): Promise<AuditCounts | Record<string, never>> {
    const { auditor, log, onAudited } = this.options;
    // A term that is over does not wait for it: the audit changes nothing, whoever leads.
    const report = await unlessAborted(auditor.audit(), signal);
    if (!report || signal.aborted) return {};
    const { violations, violationCount, pendingCount, pods, calls } = report;
    for (const { message, kind, pod, call, pool } of violations.slice(0, mostLogged)) {
      log.error({ kind, pod, call, pool }, `an invariant is violated: ${message}`);
    }
    if (violationCount > mostLogged)
      log.error({ violations: violationCount }, '`smart-router audit` lists more violations than are logged');
    if (!report.complete)
      log.warn(
        { took_ms: Math.round(report.tookMs) },
        'the audit ran out of time before it had seen everything',
      );
    // Nothing found in a part says nothing of the rest.
    if (report.complete || violationCount > 0) onAudited?.(violationCount);
    return { pods, calls, violations: violationCount, pending: pendingCount };
  }
}

/** What `work` gives, or undefined as soon as the signal aborts. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  let stop = () => {};
  const over = new Promise<undefined>((resolve) => {
    stop = () => resolve(undefined);
  });
  if (signal.aborted) stop();
  // The same signal for every round of a term: none may leave a listener behind.
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, over]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
