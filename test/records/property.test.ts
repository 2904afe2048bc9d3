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
import { Model, maxResets, rules, type Step } from './model.js';

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

const times = { timeout: '5m', stuck: { maxResets, after: '610s' } };
const workflow = pagesWorkflow(times) as Workflow;
const stepsOf = (one: fc.Arbitrary<Step>) => fc.array(one, { minLength: 20, maxLength: 60, size: 'max' });

async function play(pool: Pool, table: Table, records: number, steps: readonly Step[]): Promise<void> {
  const model = await Model.start(pool, table, records, 3);
  for (const one of steps) await model.play(one);
  await model.end();
}

/** Keys of rows change, operators retry records, and most runs fail. */
const limitedStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 20, arbitrary: step },
  {
    weight: 4,
    arbitrary: fc.record({
      ...{ do: fc.constant('finish' as const), worker, which: number },
      fails: fc.constant(true),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('retry' as const), record: number }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('key' as const),
      record: number,
      key: fc.constantFrom('1', '2', '3', null),
    }),
  },
);
const limitedWorkflow = pagesWorkflow({
  ...times,
  limit: { key: 'customer', max: rules.max },
  retry: { max: rules.retries, backoff: rules.pauseS * 1000, maxBackoff: rules.pauseS * 1000 },
}) as Workflow;

async function limitedTable(pool: Pool, isIndexed = true): Promise<Table> {
  await teamTable(pool, 0);
  await pool.query('ALTER TABLE pages ADD customer bigint');
  if (isIndexed) await pool.query("CREATE INDEX ON pages (customer, updated_at) WHERE status = 'Queued'");
  return openTable(pool, limitedWorkflow);
}

async function playLimited(
  pool: Pool,
  table: Table,
  steps: readonly Step[],
  keys = rules.keys,
): Promise<void> {
  const model = await Model.start(pool, table, keys.length, 3, { ...rules, keys });
  for (const one of steps) await model.play(one);
  await model.end();
  await model.drain();
}

describePostgres('in any order of events', (postgres) => {
  it('every statement matches the model', { timeout: 120_000 }, async () => {
    const pool = postgres.pool({ max: 2 });
    await teamTable(pool, 0);
    const table = await openTable(pool, workflow);
    await fc.assert(
      fc.asyncProperty(stepsOf(step), (steps) => play(pool, table, 6, steps)),
      { numRuns: propertyRuns(40) },
    );
  });
});

describeOnePostgres('with a limit per key and retries, in any order of events', (postgres) => {
  it.each([true, false])(
    'every statement matches the model, and every key gets its turn, with an index: %s',
    // Also for the search for a smaller example.
    { timeout: 600_000 },
    async (isIndexed) => {
      const pool = postgres.pool({ max: 2 });
      const table = await limitedTable(pool, isIndexed);
      await fc.assert(
        fc.asyncProperty(stepsOf(limitedStep), (steps) => playLimited(pool, table, steps)),
        { numRuns: propertyRuns(15) },
      );
    },
  );
});

// Steps on one record.
const claim = (worker = 0, begins = false): Step => ({ do: 'claim', worker, most: 1, begins });
const answer = (what: 'finish' | 'release' | 'renew', worker = 0): Step => ({
  ...{ do: what, worker, which: 0, fails: false },
});
const pass = (steps: number): Step => ({ do: 'pass', steps });
const fast: Step = { do: 'fast', judges: true };
const slow: Step = { do: 'slow' };
const edit = (state: 'Queued' | 'Completed'): Step => ({
  ...{ do: 'edit', record: 0, state: state === 'Queued' ? 0 : 2 },
});
const take = (timed: boolean): Step => ({ do: 'take', record: 0, timed });
/** Worker 0 claims the record and dies; the fast sweep resets it. */
const lost = (begins = false): Step[] => [claim(0, begins), pass(3), fast];
/** Another program leaves the row in Processing; the slow sweep resets it. */
const left = [take(true), pass(35), slow];

type Edit = [query: QueryName, find: string | RegExp, replace: string];
const tokenOfFinish = /AND c\.token = coalesce\(.*?\)::bigint\)/g;
const stateOfRow = / AND \(t\."status" = .*?\) IS TRUE/g;
const heartbeat = /heartbeat_at >= now\(\)/g;
const budget = /resets >= \d+/g;
/** Each with steps that reveal it every time, on a table with one record. */
const broken: [name: string, steps: Step[], ...Edit[]][] = [
  [
    'a finish that ignores the token',
    [...lost(), claim(1), answer('finish')],
    ['finish', tokenOfFinish, 'AND $3::jsonb IS NOT NULL'],
  ],
  [
    'a finish that ignores the status',
    [claim(), edit('Queued'), answer('finish')],
    ['finish', stateOfRow, ''],
  ],
  [
    'a finish that keeps the claim',
    [claim(), answer('finish')],
    ['finish', 'DELETE FROM smart_router.claims AS c', 'UPDATE smart_router.claims AS c SET trace = NULL'],
  ],
  [
    'a claim that stores no claim',
    [claim()],
    ['claim', 'FROM marked, fresh\n  WHERE', 'FROM marked, fresh\n  WHERE false AND'],
  ],
  [
    'a claim that keeps the previous token',
    [claim(), edit('Queued'), claim(1)],
    ['claim', 'SET token = fresh.token, worker', 'SET token = coalesce(c.token, fresh.token), worker'],
  ],
  [
    'a claim above its limit',
    [{ do: 'claim', worker: 0, most: 0, begins: false }],
    ['claim', 'LIMIT $2', 'LIMIT $2 + 1'],
  ],
  [
    'a claim of a record that pauses',
    [...lost(), ...lost(), claim()],
    ['claim', 'not_before > now()', "not_before > now() + interval '1 h'"],
  ],
  [
    'a claim of any status',
    [take(true), claim()],
    ['claim', /WHERE "status" = 'Queued'::[\w.]+/, 'WHERE "status" <> \'Completed\''],
  ],
  [
    'a release that ignores the token',
    [...lost(), claim(1), answer('release')],
    ['release', tokenOfFinish, 'AND $3::jsonb IS NOT NULL'],
  ],
  [
    'a reset that leaves the token valid',
    lost(),
    ['recoverClaims', 'SET token = NULL, worker', 'SET token = token, worker'],
  ],
  [
    'a reset that ignores the status',
    [claim(), edit('Completed'), pass(3), fast],
    ['recoverClaims', / AND t\."status" = .*?\n/, '\n'],
    ['recoverClaims', stateOfRow, ''],
  ],
  [
    'a reset without a budget',
    [...lost(true), ...lost(true), pass(1), ...lost(true)],
    ['recoverClaims', budget, 'resets >= 1000'],
  ],
  [
    'a reset of unclaimed rows without a budget',
    [...left, ...left, ...left],
    ['recoverUnclaimed', budget, 'resets >= 1000'],
  ],
  [
    'a reset counted for a record that had not started',
    [...lost(), ...lost()],
    ['recoverClaims', /c\.begun = c\.token/g, 'true'],
  ],
  ['a reset that is not counted', lost(), ['recoverClaims', 'resets = resets +', 'resets = resets + 0 *']],
  [
    'a heartbeat judged by a clock that is an hour ahead',
    [claim(), fast],
    ['recoverClaims', heartbeat, "heartbeat_at >= now() + interval '1 h'"],
  ],
  [
    'a heartbeat judged by a clock that is an hour behind',
    lost(),
    ['recoverClaims', heartbeat, "heartbeat_at >= now() - interval '1 h'"],
  ],
  [
    'a slow sweep that takes claimed rows',
    [claim(), pass(35), slow],
    ['listUnclaimed', 'c.token IS NULL AND', ''],
    ['listUnclaimedBlocks', 'c.token IS NULL AND', ''],
    ['recoverUnclaimed', 'c.token IS NULL AND', ''],
  ],
  [
    'a slow sweep that skips rows without a timestamp',
    [take(false), slow],
    ['markUntimed', 'IS NULL\n', 'IS NOT NULL AND false\n'],
  ],
  [
    'a renewal of a lost claim',
    [...lost(), claim(1), answer('renew')],
    ['renew', ' AND c.token = given.token', ''],
  ],
];

function breakQueries(table: Table, edits: readonly Edit[]): Table['queries'] {
  const queries = { ...table.queries };
  for (const [query, find, replace] of edits) {
    const changed = queries[query].replace(find, (found) => replace.replace('$&', () => found));
    expect(changed).not.toBe(queries[query]);
    queries[query] = changed;
  }
  return queries;
}

describeOnePostgres('a deliberately broken statement', (postgres) => {
  it.each(broken)('%s is detected', async (_, steps, ...edits) => {
    const pool = postgres.pool({ max: 2 });
    await teamTable(pool, 0);
    const table = await openTable(pool, workflow);
    const queries = breakQueries(table, edits);
    await play(pool, table, 1, steps);
    const found = await play(pool, { ...table, queries }, 1, steps).catch(String);
    // Found by the model, not because the statement could not run at all.
    expect(found).toMatch(/^AssertionError/);
  });
});

const claimUpTo = (by: number, most: number): Step => ({ do: 'claim', worker: by, most, begins: false });
const finish = (by: number, fails: boolean): Step => ({ do: 'finish', worker: by, which: 0, fails });
const release: Step = { do: 'release', worker: 0, which: 0, fails: false };
/** A worker dies, and the fast sweep takes its claims. */
const lose: readonly Step[] = [{ do: 'kill', worker: 0 }, pass(10), { do: 'fast', judges: true }];
const retry: Step = { do: 'retry', record: 0 };
const seven = (steps: readonly Step[]) => Array.from({ length: 7 }, () => steps).flat();
const hasToken = / AND c\.token IS NOT NULL/g;
const pause = /not_before > now\(\)/g;
const later = "not_before > now() + interval '1 h'";

/** One short run each, in which the broken statement must show: no search. */
const brokenLimits: [name: string, keys: (string | null)[], steps: readonly Step[], ...Edit[]][] = [
  [
    'a limit that counts only the claims of its own worker',
    ['1', '1', '1', '1'],
    [claimUpTo(0, 1), claimUpTo(1, 3)],
    ['lockLimited', hasToken, '$& AND false'],
    ['claimLimited', hasToken, '$& AND c.worker = $3::integer'],
  ],
  [
    'a limit that counts claims that were reset',
    ['1', '1', '1'],
    [claimUpTo(0, 3), ...lose, claimUpTo(1, 3)],
    ['recoverClaims', 'limit_key = NULL,', ''],
    ['lockLimited', hasToken, ''],
    ['claimLimited', hasToken, ''],
  ],
  [
    'a claim that stores no key',
    ['1', '1', '1'],
    [claimUpTo(0, 3), claimUpTo(1, 3)],
    [
      'claimLimited',
      /\(\(SELECT [^"]*"smart_router.id"\)::bigint FROM marked, fresh/,
      'NULL FROM marked, fresh',
    ],
  ],
  [
    'a claim that stores no key for a record that was released before',
    ['1', '1', '1'],
    [claimUpTo(0, 3), release, release, claimUpTo(0, 3), claimUpTo(1, 3)],
    ['claimLimited', /, limit_key = \(\(SELECT.*?\)::bigint/, ''],
  ],
  [
    'a claim that always begins with the first key',
    [...Array(8).fill('1'), '2'],
    seven([claimUpTo(0, 1), finish(0, false)]),
    ['lockLimited', /\$4::text/g, 'nullif($4::text, $4::text)'],
  ],
  [
    'a claim that always begins with records that have a key',
    [...Array(8).fill('1'), null],
    seven([claimUpTo(0, 1), finish(0, false)]),
    ['lockLimited', /LIMIT \$3::integer - .*/, 'LIMIT $3::integer - 0 * $5'],
    ['lockLimited', 'has_key = $6::boolean', 'NOT has_key, $6::boolean'],
  ],
  [
    'a claim of a record of a limited key that waits for its retry',
    ['1'],
    [claimUpTo(0, 1), finish(0, true), claimUpTo(0, 1)],
    ['lockLimited', pause, later],
  ],
  [
    'a retry without a pause',
    [null],
    [claimUpTo(0, 1), finish(0, true), claimUpTo(0, 1)],
    ['finishRetry', /not_before = now\(\) \+ .*/, 'not_before = NULL'],
  ],
  [
    'a retry that is not counted',
    [null],
    [claimUpTo(0, 1), finish(0, true)],
    ['finishRetry', 'coalesce(c.attempts, 0) + 1', 'coalesce(c.attempts, 0) + 0'],
  ],
  [
    'a retry without a budget',
    [null],
    [1, 2, 3].flatMap(() => [claimUpTo(0, 1), finish(0, true), pass(3)]),
    ['finishRetry', /< 2\)/g, '< 1000)'],
  ],
  [
    'a retry that keeps its place',
    ['1'],
    [claimUpTo(0, 1), finish(0, true)],
    ['finishRetry', 'SET token = NULL', 'SET token = c.token'],
  ],
  [
    'a retry of a claim that was lost',
    [null],
    [claimUpTo(0, 1), ...lose, claimUpTo(1, 1), finish(0, true)],
    ['finishRetry', tokenOfFinish, 'AND $3::jsonb IS NOT NULL'],
  ],
  [
    'a retry by hand that keeps the pause',
    [null],
    [claimUpTo(0, 1), finish(0, true), retry, claimUpTo(0, 1)],
    ['retryByHand', 'AND c.record_id = done.record_id', '$& AND false'],
  ],
  [
    'a retry by hand that passes over a record that waits',
    [null],
    [claimUpTo(0, 1), finish(0, true), retry],
    ['retryByHand', / OR \(t\."status" = .*?attempts > 0 AND c\.claimed_at IS NULL\)\)/, ''],
  ],
  [
    'a slow sweep that forgets attempts',
    [null],
    [claimUpTo(0, 1), finish(0, true), pass(3), { do: 'slow' }],
    ['forget', ' OR c.attempts > 0', ''],
  ],
];

describeOnePostgres('a short run with a limit and retries', (postgres) => {
  it.each(brokenLimits)('passes, and detects %s', async (_, keys, steps, ...edits) => {
    const pool = postgres.pool({ max: 2 });
    const table = await limitedTable(pool);
    await playLimited(pool, table, steps, keys);
    const broken = { ...table, queries: breakQueries(table, edits) };
    const found = await playLimited(pool, broken, steps, keys).catch((error: unknown) => error);
    expect(String(found)).toMatch(/AssertionError/);
  });
});
