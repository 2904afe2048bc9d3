/** The shapes of the request and the response of explain; see schemas.ts. */
import Type from 'typebox';
import { AllocateBody, flag, orNull, text, whole } from './schemas.js';
import { skippedSteps } from './settings-schemas.js';

const { call_sid, ...rest } = AllocateBody.properties;

export const ExplainBody = Type.Object(
  { call_sid: Type.Optional(call_sid), ...rest },
  { description: "a JSON object with an allocate's fields; without call_sid it is about any new call" },
);

const pods = (which: string) => whole(`pods ${which}`);

const Step = Type.Object({
  pool: text('`pool:{tier}` or `merchant:{id}`'),
  type: orNull(text('`exclusive` or `shared`; null if the pool does not exist')),
  max_concurrent: whole('calls that one pod takes at once'),
  pods: pods('of the pool'),
  counted: flag('false: the chain has too many pods to look at each; the counts below are lower bounds'),
  free: pods('that can take a call'),
  busy: pods('that have as many calls as they can take'),
  draining: pods('that drain'),
  terminating: pods('that terminate'),
  not_ready: pods('that are not ready'),
  awaiting_report: pods('that must report first'),
  unconfirmed: pods('held by the removal brake'),
  set_back: pods('on which calls failed: used if the chain has no other free pod'),
  misplaced: pods('with room that are missing from the available set; the sweep repairs that'),
  unreadable: pods('with a key of a wrong type, or blocked by hand'),
  result: Type.Union([Type.Literal('taken'), Type.Literal('passed_over'), Type.Literal('not_tried')], {
    description: 'what allocate would do with this pool',
  }),
  reason: text('why'),
});

export const Explained = Type.Object({
  success: Type.Literal(true),
  would: Type.Union([Type.Literal('allocate'), Type.Literal('wait'), Type.Literal('refuse')], {
    description: 'what an allocate would do now',
  }),
  code: orNull(text('the error code of a refusal; null without one')),
  summary: text('the answer as a sentence'),
  pod_name: orNull(text('a pod that the call may get: an exclusive pool gives any of its free pods')),
  source_pool: orNull(text('the pool of that pod')),
  was_existing: flag('whether the call already has this pod'),
  merchant_id: text('the merchant; empty without one'),
  max_calls: orNull(whole('most live calls of the merchant; null without a limit')),
  live_calls: orNull(whole('live calls that count against this limit; null without a limit')),
  queue: orNull(
    Type.Object(
      {
        position: orNull(whole('the place that the call would have in its queue; null if it would not wait')),
        waiting: whole('calls that wait in the same queue'),
        max_waiting: whole('most calls that may wait in it'),
        waiting_all: whole('calls that wait in all queues'),
        max_waiting_all: whole('most calls that may wait in all queues'),
        higher_priority: whole('calls of a higher priority that wait for a pool of the chain'),
      },
      { description: 'null if the call may not wait' },
    ),
  ),
  steps: Type.Array(Step, {
    description: 'the pools of the chain, in the order in which allocate tries them',
  }),
  skipped: skippedSteps,
  next: Type.Array(
    Type.Object({
      text: text('what would free a place'),
      at: orNull(text('when; null if that is not known')),
    }),
    { description: 'what would free a place, the earliest first; empty if the call would get a pod' },
  ),
});
