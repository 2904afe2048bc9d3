/** User input about records (definitions, column names, ids) is accepted or rejected with a clear error. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/errors.js';
import { parseName, parseOrder, quoteName, quoteText } from '../../src/records/identifiers.js';
import { defineWorkflow, type WorkflowDefinition } from '../../src/records/workflow.js';
import { type Engine, embeddedValkey } from '../support/engines.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobsTable, recordsModule } from '../support/records-module.js';
import { startTestRouter } from '../support/router.js';
import { until } from '../support/until.js';
import { expectCleanLog, expectGood, unhurried } from './answers.js';
import { bodyText, encoded } from './requests.js';
import { fuzzing, fuzzingAtOnce } from './runs.js';
import { damaged, oddJson, oddText, orOdd, some } from './values.js';

const name = fc.oneof(
  fc.constantFrom('pages', 'Team.Pages', '"Team"."Pages"', '"a""b"', 'é', '_x$1', 'a.b.c', '"', '""'),
  oddText,
  oddText.map((text) => `"${text.replaceAll('"', '""')}"`),
);
const order = fc
  .array(
    fc.tuple(name, fc.constantFrom('', ' ASC', ' desc', ' NULLS FIRST', ' DESC NULLS LAST', ' sideways')),
    { maxLength: 3 },
  )
  .map((terms) => terms.map((term) => term.join('')).join(', '));

describe('names as SQL has them', () => {
  it('are quoted and read back as themselves, or refused', () => {
    fc.assert(
      fc.property(fc.oneof(name, damaged(name)), fc.integer({ min: 1, max: 3 }), (text, most) => {
        const parts = parseName(text, most);
        if (!parts) return;
        expect(parts.length).toBeLessThanOrEqual(most);
        expect(parseName(quoteName(parts), most)).toEqual(parts);
      }),
      fuzzingAtOnce(500),
    );
    fc.assert(
      fc.property(fc.oneof(order, damaged(order)), (text) => {
        for (const { column, rest } of parseOrder(text) ?? []) {
          expect(parseName(quoteName([column]), 1)).toEqual([column]);
          expect(rest).toMatch(/^( (ASC|DESC))?( NULLS (FIRST|LAST))?$/);
        }
      }),
      fuzzingAtOnce(500),
    );
  });
});

describe('a definition of a workflow', () => {
  it('of any shape is a workflow, or an error with every problem', () => {
    const definition = orOdd(
      some({
        name: orOdd(fc.constant('jobs')),
        table: orOdd(name),
        id: orOdd(name),
        status: orOdd(
          some({
            column: name,
            queued: fc.constant('q'),
            processing: oddText,
            completed: oddJson,
            failed: oddText,
          }),
        ),
        error: orOdd(name),
        touchedAt: orOdd(name),
        batchSize: orOdd(fc.nat()),
        concurrency: orOdd(fc.nat()),
        orderBy: orOdd(order),
        timeout: orOdd(fc.constantFrom('5m', 1000)),
        timeZone: orOdd(fc.constant('UTC')),
        stuck: orOdd(some({ after: oddJson, policy: orOdd(fc.constant('hold')), maxResets: oddJson })),
        process: orOdd(fc.constant(() => undefined)),
      }),
      10,
    );
    fc.assert(
      fc.property(definition, (value) => {
        try {
          expect(defineWorkflow(value as WorkflowDefinition).table.length).toBeGreaterThan(0);
        } catch (error) {
          expect(error).toBeInstanceOf(ConfigError);
          const { problems } = error as ConfigError;
          expect(problems.length).toBeGreaterThan(0);
          for (const problem of problems) expect(problem).toMatch(/^workflow[^\n]*$/);
        }
      }),
      fuzzingAtOnce(500),
    );
  });
});

let engine: Engine;
beforeAll(async () => {
  engine = await embeddedValkey();
});
afterAll(() => engine.stop());

describeOnePostgres('records with any id', (postgres) => {
  it('are found or not, and nothing in the database is broken', async () => {
    const pool = postgres.pool();
    await jobsTable(pool);
    const router = await startTestRouter(engine.url, {
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
      ...unhurried,
    });
    postgres.onEnd(() => router.stop());
    await until(
      async () => (await router.get('/status')).body.records.error === null,
      'the database is open',
    );
    const job = await addJob(pool, 'ok', { status: 'Failed' });
    const id = fc.oneof(
      fc.constantFrom(job, '1e3', ' 1', '0x1', '-0', '2147483648', '1.5', "1'", 'NULL'),
      oddText,
    );
    const body = bodyText(
      fc.record(
        { ids: fc.array(id, { minLength: 1, maxLength: 5 }), dry_run: fc.boolean() },
        { requiredKeys: ['ids'], noNullPrototype: true },
      ),
    );
    const workflow = fc.oneof(
      { weight: 4, arbitrary: fc.constant('jobs') },
      { weight: 1, arbitrary: encoded(oddText) },
    );
    const verb = fc.constantFrom('reset', 'retry');
    await fc.assert(
      fc.asyncProperty(workflow, verb, body, encoded(oddText), async (workflow, verb, body, odd) => {
        const headers = { 'content-type': 'application/json' };
        const asked = `/records/${workflow}/${verb}`;
        expectGood(await router.ask(asked, { method: 'POST', headers, body }), { asked, body });
        expectGood(await router.get(`/records/${workflow}/failed?limit=${odd}`), { workflow, odd });
      }),
      fuzzing(40),
    );
    expect((await router.get('/records/jobs/stuck')).status).toBe(200);
    const { rows } = await pool.query<{ count: string }>('SELECT count(*) FROM jobs');
    expect(rows[0]?.count).toBe('1');
    expect(quoteText("it's")).toBe("'it''s'");
    expectCleanLog(router);
  });

  it('have names and texts that PostgreSQL reads unchanged', async () => {
    const pool = postgres.pool();
    await fc.assert(
      fc.asyncProperty(name, oddText, async (name, text) => {
        const parts = parseName(name, 1);
        // Neither can be sent to PostgreSQL at all.
        if (!parts || /\0|\p{Cs}/u.test(text + parts[0])) return;
        const { fields, rows } = await pool.query(`SELECT ${quoteText(text)} AS ${quoteName(parts)}`);
        expect(fields[0]?.name).toBe(parts[0]);
        expect(Object.values(rows[0] ?? {})).toEqual([text]);
      }),
      fuzzing(150),
    );
  });
});
