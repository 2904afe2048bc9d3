/** The shapes of what is said and asked about records; see schemas.ts. */
import Type from 'typebox';
import { maxIds } from '../records/documents.js';
import { orNull, text, texts, whole } from './fields.js';

const seconds = (description: string) => orNull(Type.Number({ description }));
const oldestStuck = seconds('how long the oldest of them is stuck; null without one');

const up = Type.Union([Type.Literal('up'), Type.Literal('down')], {
  description: 'whether the database answers',
});
export const RecordsState = Type.Object({
  database: up,
  paused: Type.Boolean({ description: 'nothing is claimed because sessions of the database fail' }),
  braked: Type.Boolean({
    description: 'most workers fell silent at once, and nothing is taken from them yet',
  }),
  cleanup: Type.Boolean({ description: 'stuck records are brought back' }),
  error: orNull(Type.String({ description: 'why records are not processed' })),
  workflows: Type.Array(
    Type.Object({
      name: text('its name'),
      stuck: orNull(whole('what the last sweep found; null while that is not known')),
      oldest_stuck_seconds: oldestStuck,
    }),
    { description: 'those of this router' },
  ),
});

export const RecordWorkflows = Type.Object({
  workflows: Type.Array(
    Type.Object({
      name: text('its name'),
      queued: whole('records that wait'),
      processing: whole('records in Processing, the stuck ones among them'),
      stuck: Type.Integer({ description: 'those in processing that have lost their owner' }),
      held: Type.Integer({ description: 'those of them that wait for a person' }),
      failed: whole('failed records'),
      oldest_queued_seconds: seconds('how long the oldest waits; null without one'),
      oldest_stuck_seconds: oldestStuck,
      processing_p99_seconds: orNull(
        Type.Number({
          description: '99 of 100 records take no longer on this router; null before 100 of them',
        }),
      ),
      advice: texts('what is missing, for instance an index'),
    }),
    { description: 'empty without `DATABASE_URL`' },
  ),
});

const workflowName = text('the workflow');
const handled = Type.Object({
  id: text('the id of the record'),
  outcome: Type.String({ description: 'requeued, failed, held or skipped' }),
  reason: Type.String({
    description:
      'dead_worker, timed_out, given_up, unclaimed, by_hand; of one that is skipped live_claim, not_found, not_processing, not_failed',
  }),
  resets: Type.Integer({ description: 'before this one' }),
  stuck_seconds: seconds('for how long it is stuck; null if it is not'),
  worker: orNull(text('who has claimed it')),
  trace: orNull(Type.String({ description: 'the last note of what was being done' })),
});

export const WorkflowParams = Type.Object({
  workflow: Type.String({
    pattern: '^[A-Za-z0-9_.-]{1,64}$',
    description: 'the name of a workflow: a string of 1 to 64 of A-Z a-z 0-9 _ . -',
  }),
});
export const StuckQuery = Type.Object({
  limit: Type.Optional(
    Type.String({
      default: '100',
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      description: 'a whole number from 1 to 1000',
    }),
  ),
});
export const StuckRecords = Type.Object({
  workflow: workflowName,
  total: whole('how many there are'),
  records: Type.Array(handled, { description: 'the oldest first' }),
});

export const FailedRecords = Type.Object({
  workflow: workflowName,
  records: Type.Array(
    Type.Object({
      id: text('the id of the record'),
      error: orNull(Type.String({ description: 'at most 1000 characters of it' })),
      failed_seconds: seconds('for how long it has been so'),
    }),
    { description: 'the newest first' },
  ),
});

const ids = Type.Array(
  Type.String({ minLength: 1, maxLength: 256, description: 'the id of a record: 1 to 256 characters' }),
  { minItems: 1, maxItems: maxIds, description: `a list of 1 to ${maxIds} ids of records` },
);
const dryRun = (usual: boolean) =>
  Type.Boolean({ default: usual, description: 'true (only say what would be done) or false' });
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
  dry_run: Type.Boolean({ description: 'nothing was changed: this is what would be' }),
  requeued: whole('back to Queued'),
  failed: whole('past their resets: to Failed'),
  held: whole('left for a person'),
  skipped: whole('left alone, each with its reason'),
  total: Type.Integer({ description: 'how many are concerned, also those that are not listed' }),
  records: Type.Array(handled, { description: 'at most 1000 of them' }),
});
