/**
 * Routes about records: counts, stuck and failed records, reset and retry by operators. `reset` is a dry run by default;
 * none of them touches a record with a live claim. They have a longer deadline than calls: counting a large table takes
 * seconds.
 */
import { AppError, ConfigError } from '../../errors.js';
import { maxIds, type RemoteOperations, showCounts, showFailed, showRecord } from '../../records/admin.js';
import type { HandledCounts } from '../../records/operations.js';
import { bodyField, param } from '../action-log.js';
import { type App, documented, type HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import * as shapes from '../record-schemas.js';
import { ErrorAnswer, errorOf } from '../schemas.js';

const databaseTimeoutMs = 15_000;

export async function recordRoutes(app: App, context: HttpContext): Promise<void> {
  const { records, clock } = context;
  const about = documented('records');
  const unavailable = { 503: errorOf('database_unavailable', 'timeout') };
  const errors = { 400: ErrorAnswer, 404: errorOf('workflow_not_found'), ...unavailable };
  const workflow = shapes.WorkflowParams;

  const ask = async <T>(work: (operations: RemoteOperations) => Promise<T>): Promise<T> => {
    if (!records)
      throw new AppError(
        'workflow_not_found',
        'this router processes no records: DATABASE_URL is not set, or no workflow is configured',
      );
    try {
      return await withDeadline(clock, databaseTimeoutMs, work(records.operations()));
    } catch (error) {
      // The table has changed since the router started.
      if (!(error instanceof ConfigError)) throw error;
      throw new AppError('database_unavailable', error.problems.join('; '), {
        retryAfterSeconds: 5,
        problems: error.problems,
      });
    }
  };

  app.get(
    '/records',
    about('Counts of records by workflow (queued, processing, stuck, failed), and advice', {
      response: { 200: shapes.RecordWorkflows, ...unavailable },
    }),
    async () => ({ workflows: records ? await ask((operations) => operations.numbers()) : [] }),
  );

  app.get(
    '/records/:workflow/stuck',
    about('Records in Processing that have lost their owner, the oldest first', {
      params: workflow,
      querystring: shapes.StuckQuery,
      response: { 200: shapes.StuckRecords, ...errors },
    }),
    async ({ params, query }) => {
      const found = await ask((operations) =>
        operations.inspect(params.workflow, Number(query.limit ?? 100)),
      );
      return { workflow: found.workflow, total: found.stuck, records: found.stuckRecords.map(showRecord) };
    },
  );

  app.get(
    '/records/:workflow/failed',
    about('Failed records with their errors, also those that wait for a retry', {
      params: workflow,
      querystring: shapes.StuckQuery,
      response: { 200: shapes.FailedRecords, ...errors },
    }),
    async ({ params, query }) => {
      const failed = await ask((operations) =>
        operations.failed(params.workflow, Number(query.limit ?? 100)),
      );
      return {
        workflow: params.workflow,
        records: failed.map(showFailed),
      };
    },
  );

  app.post(
    '/records/:workflow/reset',
    {
      config: {
        bodyOptional: true,
        action: {
          name: 'records.reset',
          target: param('workflow'),
          isDryRun: (request) => bodyField('dry_run')(request) !== false,
        },
      },
      ...about('Reset stuck records: all, or those in ids; a dry run unless dry_run is false', {
        params: workflow,
        body: shapes.ResetBody,
        response: { 200: shapes.HandledRecords, ...errors },
      }),
    },
    async (request) => {
      const { dry_run: dryRun = true, ids } = request.body;
      const counts = await ask((operations) => operations.reset(request.params.workflow, { ids, dryRun }));
      if (!dryRun) request.log.warn({ by: request.actor, ...logged(counts) }, 'records reset');
      return { success: true as const, ...showCounts(counts) };
    },
  );

  app.post(
    '/records/:workflow/retry',
    {
      config: {
        action: {
          name: 'records.retry',
          target: param('workflow'),
          isDryRun: (request) => bodyField('dry_run')(request) === true,
        },
      },
      ...about(
        `Requeue failed records, at most ${maxIds} by id, also those that wait for a retry; resets and attempts count from 0`,
        {
          params: workflow,
          body: shapes.RetryBody,
          response: { 200: shapes.HandledRecords, ...errors },
        },
      ),
    },
    async (request) => {
      const { dry_run: dryRun = false, ids } = request.body;
      const counts = await ask((operations) => operations.retry(request.params.workflow, { ids, dryRun }));
      if (!dryRun) request.log.warn({ by: request.actor, ...logged(counts) }, 'failed records requeued');
      return { success: true as const, ...showCounts(counts) };
    },
  );
}

function logged({ workflow, requeued, failed, held, skipped }: HandledCounts) {
  return { workflow, requeued, failed, held, skipped };
}
