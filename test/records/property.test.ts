/**
 * Workers, sweeps, operators and other programs act in any order: every statement matches the model. And the
 * model detects deliberately broken statements. Guarantee 10.
 */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { openTable, type QueryName, type Table } from '../../src/records/table.js';
import type { Workflow } from '../../src/records/workflow.js';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { propertyRuns } from '../support/property-runs.js';
import { pagesWorkflow, teamTable } from './fixture.js';
import { Model, maxResets, type Step } from './model.js';

const number = fc.nat(7);
const worker = fc.nat(2);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      ...{ do: fc.constant('claim' as const), worker, most: fc.integer({ min: 1, max: 3 }) },
      begins: fc.boolean(),
    }),
  },
  {
    weight: 7,
    arbitrary: fc.record({
      do: fc.constantFrom('finish' as const, 'finish' as const, 'release' as const, 'renew' as const),
      ...{ worker, which: number, fails: fc.boolean() },
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('beat' as const), worker }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('kill' as const, 'signOff' as const), worker }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('pass' as const), steps: fc.constantFrom(1, 2, 3, 10, 17, 35) }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('fast' as const), judges: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('slow' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('edit' as const), record: number, state: fc.nat(3) }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('take' as const), record: number, timed: fc.boolean() }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('remove' as const), record: number }) },
);

const workflow = pagesWorkflow({ timeout: '5m', stuck: { maxResets, after: '610s' } }) as Workflow;
const property = (pool: Pool, table: Table) =>
  fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60, size: 'max' }), async (steps) => {
    const model = await Model.start(pool, table, 6, 3);
    for (const one of steps) await model.play(one);
    await model.end();
  });

describePostgres('in any order of events', (postgres) => {
  it('every statement matches the model', { timeout: 120_000 }, async () => {
    const pool = postgres.pool({ max: 2 });
    await teamTable(pool, 0);
    const table = await openTable(pool, workflow);
    await fc.assert(property(pool, table), { numRuns: propertyRuns(40) });
  });
});

type Edit = [query: QueryName, find: string | RegExp, replace: string];
const tokenOfFinish = /AND c\.token = \(.*?\)::bigint/g;
const stateOfRow = / AND \(t\."status" = .*?\) IS TRUE/g;
const heartbeat = /heartbeat_at >= now\(\)/g;
const budget = /resets >= \d+/g;
const broken: [name: string, ...Edit[]][] = [
  ['a finish that ignores the token', ['finish', tokenOfFinish, 'AND $3::jsonb IS NOT NULL']],
  ['a finish that ignores the status', ['finish', stateOfRow, '']],
  [
    'a finish that keeps the claim',
    [
      'finish',
      'DELETE FROM smart_router.claims AS c\n  USING bound',
      'UPDATE smart_router.claims AS c SET trace = NULL FROM bound',
    ],
  ],
  [
    'a claim that stores no claim',
    ['claim', 'FROM marked, fresh\n  WHERE marked', 'FROM marked, fresh\n  WHERE false AND marked'],
  ],
  [
    'a claim that keeps the previous token',
    ['claim', 'SET token = fresh.token, worker', 'SET token = coalesce(c.token, fresh.token), worker'],
  ],
  ['a claim above its limit', ['claim', 'LIMIT $2', 'LIMIT $2 + 1']],
  ['a claim of a record that pauses', ['claim', 'not_before > now()', "not_before > now() + interval '1 h'"]],
  [
    'a claim of any status',
    ['claim', /WHERE "status" = 'Queued'::[\w.]+/, 'WHERE "status" <> \'Completed\''],
  ],
  ['a release that ignores the token', ['release', tokenOfFinish, 'AND $3::jsonb IS NOT NULL']],
  [
    'a reset that leaves the token valid',
    ['recoverClaims', 'SET token = NULL, worker', 'SET token = token, worker'],
  ],
  [
    'a reset that ignores the status',
    ['recoverClaims', / AND t\."status" = .*?\n/, '\n'],
    ['recoverClaims', stateOfRow, ''],
  ],
  ['a reset without a budget', ['recoverClaims', budget, 'resets >= 1000']],
  ['a reset of unclaimed rows without a budget', ['recoverUnclaimed', budget, 'resets >= 1000']],
  ['a reset counted for a record that had not started', ['recoverClaims', /c\.begun = c\.token/g, 'true']],
  ['a reset that is not counted', ['recoverClaims', 'resets = resets +', 'resets = resets + 0 *']],
  [
    'a heartbeat judged by a clock that is an hour ahead',
    ['recoverClaims', heartbeat, "heartbeat_at >= now() + interval '1 h'"],
  ],
  [
    'a heartbeat judged by a clock that is an hour behind',
    ['recoverClaims', heartbeat, "heartbeat_at >= now() - interval '1 h'"],
  ],
  [
    'a slow sweep that takes claimed rows',
    ['listUnclaimed', 'c.token IS NULL AND', ''],
    ['listUnclaimedBlocks', 'c.token IS NULL AND', ''],
    ['recoverUnclaimed', 'c.token IS NULL AND', ''],
  ],
  [
    'a slow sweep that skips rows without a timestamp',
    ['markUntimed', 'IS NULL\n', 'IS NOT NULL AND false\n'],
  ],
  ['a renewal of a lost claim', ['renew', ' AND c.token = given.token', '']],
];

describeOnePostgres('a deliberately broken statement', (postgres) => {
  it.each(broken)('%s is detected', async (_, ...edits) => {
    const pool = postgres.pool({ max: 2 });
    await teamTable(pool, 0);
    const table = await openTable(pool, workflow);
    const queries = { ...table.queries };
    for (const [query, find, replace] of edits) {
      const changed = queries[query].replace(find, () => replace);
      expect(changed).not.toBe(queries[query]);
      queries[query] = changed;
    }
    const result = await fc.check(property(pool, { ...table, queries }), {
      seed: 4711,
      numRuns: 200,
      endOnFailure: true,
    });
    expect(result.failed).toBe(true);
    // Found by the model, not because the statement could not run at all.
    expect(String(result.errorInstance)).toMatch(/AssertionError|duplicate key/);
  });
});
