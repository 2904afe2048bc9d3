/** The shapes of what is said and asked about records; see schemas.ts. */
import Type from 'typebox';
import { mostIds } from '../records/by-hand-documents.js';

const orNull = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const seconds = Type.Number();

const up = Type.Union([Type.Literal('up'), Type.Literal('down')]);
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
      name: Type.String(),
      stuck: orNull(Type.Integer()),
      oldest_stuck_seconds: orNull(seconds),
    }),
  ),
});

export const RecordWorkflows = Type.Object({
  workflows: Type.Array(
    Type.Object({
      name: Type.String(),
      queued: Type.Integer(),
      processing: Type.Integer(),
      stuck: Type.Integer({ description: 'those in processing that have lost their owner' }),
      held: Type.Integer({ description: 'those of them that wait for a person' }),
      failed: Type.Integer(),
      oldest_queued_seconds: orNull(seconds),
      oldest_stuck_seconds: orNull(seconds),
      processing_p99_seconds: orNull(
        Type.Number({
          description: '99 of 100 records take no longer on this router; null before 100 of them',
        }),
      ),
      advice: Type.Array(Type.String()),
    }),
  ),
});

const handled = Type.Object({
  id: Type.String(),
  outcome: Type.String({ description: 'requeued, failed, held or skipped' }),
  reason: Type.String({
    description:
      'dead_worker, timed_out, unclaimed, by_hand; of one that is skipped live_claim, not_found, not_processing, not_failed',
  }),
  resets: Type.Integer({ description: 'before this one' }),
  stuck_seconds: orNull(seconds),
  worker: orNull(Type.String()),
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
    Type.String({ pattern: '^([1-9][0-9]{0,2}|1000)$', description: 'a whole number from 1 to 1000' }),
  ),
});
export const StuckRecords = Type.Object({
  workflow: Type.String(),
  total: Type.Integer(),
  records: Type.Array(handled, { description: 'the oldest first' }),
});

export const FailedRecords = Type.Object({
  workflow: Type.String(),
  records: Type.Array(
    Type.Object({
      id: Type.String(),
      error: orNull(Type.String({ description: 'at most 1000 characters of it' })),
      failed_seconds: orNull(seconds),
    }),
    { description: 'the newest first' },
  ),
});

const ids = Type.Array(
  Type.String({ minLength: 1, maxLength: 256, description: 'the id of a record: 1 to 256 characters' }),
  { minItems: 1, maxItems: mostIds, description: `a list of 1 to ${mostIds} ids of records` },
);
const dryRun = Type.Boolean({ description: 'true or false' });
export const ResetBody = Type.Object(
  { dry_run: Type.Optional(dryRun), ids: Type.Optional(ids) },
  { description: 'a JSON object, or nothing' },
);
export const RetryBody = Type.Object(
  { dry_run: Type.Optional(dryRun), ids },
  { description: 'a JSON object with ids' },
);
export const HandledRecords = Type.Object({
  success: Type.Literal(true),
  workflow: Type.String(),
  dry_run: Type.Boolean({ description: 'nothing was changed: this is what would be' }),
  requeued: Type.Integer(),
  failed: Type.Integer(),
  held: Type.Integer(),
  skipped: Type.Integer(),
  total: Type.Integer({ description: 'how many are concerned, also those that are not listed' }),
  records: Type.Array(handled, { description: 'at most 1000 of them' }),
});
