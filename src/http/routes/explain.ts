/** Explain: what an allocate would do now, and why. Changes nothing. */
import { judge } from '../../calls/explanation.js';
import { type App, documented, type HttpContext } from '../context.js';
import { inTime } from '../deadline.js';
import { ExplainBody, Explained } from '../operator-schemas.js';
import { defaultCallTemplate } from '../providers/ws-url.js';
import { ErrorAnswer, errorOf } from '../schemas.js';
import { parseWait } from './calls.js';

export async function explainRoutes(app: App, context: HttpContext): Promise<void> {
  app.post(
    '/explain',
    documented('operators')('What an allocate with this body would do now, and why; changes nothing', {
      body: ExplainBody,
      response: { 200: Explained, 400: ErrorAnswer, 503: errorOf('store_unavailable', 'timeout') },
    }),
    async ({ body }) => {
      const mayWait = parseWait(body.wait) !== undefined;
      const { call_sid = '', merchant_id = '', provider = 'twilio', flow = 'v2' } = body;
      const template = body.template ?? defaultCallTemplate(provider);
      const call = { callSid: call_sid, merchantId: merchant_id, provider, flow, template };
      const explained = await inTime(context, context.router.explain(call, mayWait));
      const { outcome, maxCalls, hold } = explained;
      const { would, code, summary, steps, next } = judge(explained);
      return {
        success: true as const,
        would,
        code,
        summary,
        pod_name: outcome.allocation?.podName ?? null,
        source_pool: outcome.allocation?.sourcePool ?? null,
        was_existing: outcome.allocation?.wasExisting ?? false,
        merchant_id,
        max_calls: maxCalls ?? null,
        live_calls: maxCalls === undefined ? null : explained.liveCalls,
        queue: hold
          ? {
              position: outcome.waiting?.position ?? null,
              waiting: explained.waiting,
              max_waiting: hold.maxWaiting,
              waiting_all: explained.waitingAll,
              max_waiting_all: hold.maxWaitingAll,
              higher_priority: explained.waitingBefore,
            }
          : null,
        steps: steps.map(({ pool, kind, maxConcurrent, pods, lookedAt, counts, result, reason }) => {
          const { flapping, ...states } = counts;
          return {
            pool,
            type: kind ?? null,
            max_concurrent: maxConcurrent,
            pods,
            counted: lookedAt >= pods || !kind,
            ...states,
            set_back: flapping,
            result,
            reason,
          };
        }),
        skipped: explained.skipped,
        next: next.map(({ text, atMs }) => ({
          text,
          at: atMs === undefined ? null : new Date(atMs).toISOString(),
        })),
      };
    },
  );
}
