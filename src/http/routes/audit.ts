/**
 * An operator's question whether the calls and pods in the store contradict each other. Any replica can answer; it
 * reads in small pieces beside the calls, so it takes its time: `maxAuditMs` at most, not `REQUEST_TIMEOUT`.
 */
import type { ReportedFinding } from '../../calls/audit/findings.js';
import type { App, HttpContext } from '../context.js';
import * as schemas from '../schemas.js';

export async function auditRoutes(app: App, context: HttpContext): Promise<void> {
  const { router, auditor } = context;
  const { ErrorAnswer } = schemas;

  app.get(
    '/audit',
    {
      schema: {
        tags: ['operators'],
        summary: 'Do the calls and pods in the store contradict each other, now?',
        response: { 200: schemas.Audit, 503: ErrorAnswer },
      },
    },
    async () => {
      router.assertPrepared();
      const report = await auditor.audit();
      return {
        complete: report.complete,
        took_ms: report.tookMs,
        looked_at: {
          pools: report.pools,
          pods: report.pods,
          calls: report.calls,
          keys: report.keys,
        },
        violation_count: report.violationCount,
        violations: report.violations.map(show),
        pending_count: report.pendingCount,
        pending: report.pending.map(show),
      };
    },
  );
}

function show({ kind, pod, call, pool, message }: ReportedFinding) {
  return { kind, pod_name: pod, call_sid: call, pool, message };
}
