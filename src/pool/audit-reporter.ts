/**
 * Runs the consistency audit on the leader, and logs and counts the violations. It repairs nothing: the sweep does,
 * or an operator. A store that does not respond ends the round; the last count stays.
 */
import type { Auditor } from '../calls/audit/auditor.js';
import { unlessAborted } from '../clock.js';
import type { LeaderOptions } from './leader-options.js';

/** A broken store has thousands of violations, and the first few show it; `smart-router audit` lists more. */
const maxLogged = 10;

export async function reportAudit(
  auditor: Pick<Auditor, 'audit'>,
  { log, onAudited }: Pick<LeaderOptions, 'log' | 'onAudited'>,
  signal: AbortSignal,
): Promise<Record<string, number>> {
  // An ended term does not wait for the audit, which changes nothing.
  const report = await unlessAborted(auditor.audit(), signal);
  if (!report || signal.aborted) return {};
  const { complete, took_ms, violation_count: violations, pending_count: pending } = report;
  for (const { message, kind, pod_name: pod, call_sid: call, pool } of report.violations.slice(0, maxLogged))
    log.error({ kind, pod, call, pool }, `invariant violated: ${message}`);
  if (violations > maxLogged)
    log.error({ violations }, 'more violations than logged: see `smart-router audit`');
  if (!complete) log.warn({ took_ms }, 'audit incomplete: out of time');
  // Without violations an incomplete audit says nothing about the rest.
  if (complete || violations > 0) onAudited?.(violations);
  const { pods, calls } = report.looked_at;
  return { pods, calls, violations, pending };
}
