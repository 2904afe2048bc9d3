/** The shapes of tiers and merchants in responses. */
import Type from 'typebox';
import { text, texts, whole } from './schemas.js';

const Hold = Type.Object(
  {
    max_wait: text('the longest wait'),
    max_waiting: whole('the most calls that wait at once'),
  },
  { description: 'calls that find no pod may wait for one, by these rules; absent: they are refused' },
);
export const Tiers = Type.Object({
  tiers: Type.Record(
    Type.String(),
    Type.Object({
      type: text('`exclusive` or `shared`'),
      target: whole('how many pods it should have'),
      max_concurrent: Type.Optional(whole('maximum calls per pod of a shared tier')),
    }),
    { description: 'by name' },
  ),
  default_chain: texts('the tiers that a call tries, in order'),
  hold: Type.Optional(Hold),
  version: whole('grows with every change; also the `ETag`'),
  warnings: Type.Optional(texts('accepted settings that may be mistakes; only in the response to `PUT`')),
});

export const skippedSteps = Type.Array(
  Type.Object({ step: text('the step as configured'), reason: text('why it is skipped') }),
  { description: 'configured steps that do not name a pool' },
);
export const Merchant = Type.Object({
  merchant_id: text('the merchant'),
  tier: Type.Optional(text('the tier at which its default chain begins, if configured')),
  pool: Type.Optional(text('its own pool, which is tried first, if configured')),
  fallback: Type.Optional(texts('the tiers that replace the default chain, if configured')),
  hold: Type.Optional(Hold),
  priority: Type.Optional(whole('0 to 9: among waiting calls, a higher one is served first; default 0')),
  weight: Type.Optional(whole('1 to 100: share of the pods among merchants of one priority; default 1')),
  max_calls: Type.Optional(whole('the most live calls of this merchant; absent: no limit')),
  fallback_number: Type.Optional(
    text('the number to which a held caller is connected when the wait expires'),
  ),
  chain: texts('the pools that a call of this merchant tries, in order'),
  skipped: skippedSteps,
});
export const Merchants = Type.Object({
  merchants: Type.Array(Merchant, { description: 'all configured merchants, by id' }),
});
