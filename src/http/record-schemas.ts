/** The shapes of requests and responses about records; see schemas.ts. */
import Type from 'typebox';
import { maxIds } from '../records/admin.js';
import { flag, limit, orNull, seconds, text, texts, upTo1000, whole } from './schemas.js';

export const RecordWorkflows = Type.Object({
  workflows: Type.Array(
    Type.Object({
      name: text('its name'),
      queued: whole('queued records, with those that wait for a retry'),
      processing: whole('records in Processing, with the stuck ones'),
      stuck: whole('records in Processing that have lost their owner'),
      held: whole('stuck records that wait for an operator'),
      failed: whole('failed records'),
      oldest_queued_seconds: seconds('how long the oldest queued record waits; null without one'),
      oldest_stuck_seconds: seconds('how long the oldest stuck record has been stuck; null without one'),
      waiting_for_retry: orNull(whole('failed records that wait for their retry; null without `retry`')),
      next_retry_seconds: seconds('time until the first of them is due; null without one'),
      keys_at_limit: orNull(
        whole('keys with as many records in progress as the limit allows; null without `limit`'),
      ),
      processing_p99_seconds: seconds(
        '99th percentile of the processing time on this router; null before 100 records',
      ),
      advice: texts('missing pieces, for example an index'),
    }),
    { description: 'empty without `DATABASE_URL`' },
  ),
});

const workflowName = text('the workflow');
const handled = Type.Object({
  id: text('the id of the record'),
  outcome: text('requeued, failed, held or skipped'),
  reason: text(
    'dead_worker, timed_out, given_up, unclaimed, by_hand; if skipped: live_claim, not_found, not_processing, not_failed',
  ),
  resets: whole('earlier resets'),
  stuck_seconds: seconds('how long it has been stuck; null if it is not'),
  worker: orNull(text('the worker that claimed it')),
  trace: orNull(text('the last note of its handler')),
});

export const WorkflowParams = Type.Object({
  workflow: Type.String({
    pattern: '^[A-Za-z0-9_.-]{1,64}$',
    description: 'the name of a workflow: a string of 1 to 64 of A-Z a-z 0-9 _ . -',
  }),
});
export const StuckQuery = Type.Object({ limit: limit(upTo1000, 1000) });
export const StuckRecords = Type.Object({
  workflow: workflowName,
  total: whole('number of stuck records'),
  records: Type.Array(handled, { description: 'the oldest first' }),
});

export const FailedRecords = Type.Object({
  workflow: workflowName,
  records: Type.Array(
    Type.Object({
      id: text('the id of the record'),
      error: orNull(text('its error, at most 1000 characters')),
      failed_seconds: seconds('time since it failed'),
      retry_seconds: seconds('time until its retry; null: it is Failed'),
    }),
    { description: 'failed ones, the newest first; then those that wait for a retry' },
  ),
});

const ids = Type.Array(
  Type.String({ minLength: 1, maxLength: 256, description: 'the id of a record: 1 to 256 characters' }),
  { minItems: 1, maxItems: maxIds, description: `a list of 1 to ${maxIds} ids of records` },
);
const dryRun = (fallback: boolean) =>
  Type.Boolean({ default: fallback, description: 'true (changes nothing, only shows the result) or false' });
export const ResetBody = Type.Object(
  { dry_run: Type.Optional(dryRun(true)), ids: Type.Optional(ids) },
  { description: 'a JSON object, or nothing' },
);
export const RetryBody = Type.Object(
  { dry_run: Type.Optional(dryRun(false)), ids },
  { description: 'a JSON object with ids' },
);
export const HandledRecords = Type.Object({
  success: Type.Literal(true),
  workflow: workflowName,
  dry_run: flag('true: nothing was changed, this is the result it would have'),
  requeued: whole('set to Queued'),
  failed: whole('set to Failed, because their resets are used up'),
  held: whole('left for an operator'),
  skipped: whole('not changed, each with its reason'),
  total: whole('records concerned, including those not listed'),
  records: Type.Array(handled, { description: 'at most 1000 of them' }),
});
