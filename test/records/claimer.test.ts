/** Claims whose reply was lost: the worker releases records that it holds without knowing. */
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { Breaker } from '../../src/records/breaker.js';
import { Claimer } from '../../src/records/claimer.js';
import { Sessions } from '../../src/records/sessions.js';
import { StatusGuard } from '../../src/records/status-guard.js';
import { type Claim, RecordStore } from '../../src/records/store.js';
import { openTable } from '../../src/records/table.js';
import type { Workflow } from '../../src/records/workflow.js';
import { describeOnePostgres } from '../support/postgres.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { memoryLog, pagesWorkflow, statuses, storeOf, teamTable } from './fixture.js';

const urls = (claims: Claim[]) => claims.map(({ record }) => record.url);

const newClaimer = (store: RecordStore, clock = new SkippingClock()) =>
  new Claimer({
    ...{ workflow: pagesWorkflow({ orderBy: 'url' }) as Workflow, store, clock },
    guard: new StatusGuard({ workflow: 'pages', clock, log: memoryLog().log }),
    ...{ log: memoryLog().log, observer: {}, worker: { id: 7, beAlive: async () => {} } },
    release: async (claims) => void (await store.release(claims)),
    breaker: new Breaker({
      clock: systemClock,
      probe: async () => {},
      onBack: async () => {},
      onChange: () => {},
    }),
  });

describeOnePostgres('a claim whose reply is lost', (postgres) => {
  it('is released, also while records are claimed one by one', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 0);
    await admin.query("INSERT INTO pages (url) VALUES ('a'), ('b'), ('c')");
    await admin.query(
      "ALTER TABLE pages ADD CONSTRAINT never CHECK (url <> 'c' OR status = 'Queued') NOT VALID",
    );
    const proxy = await tcpProxy(postgres.port);
    const connectionString = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const sessions = new Sessions({ pool: postgres.pool({ connectionString }), clock: systemClock });
    const { rows } = await admin.query("SELECT id FROM pages WHERE url = 'b'");
    class Losing extends RecordStore {
      #isLost = false;
      override async claim(...args: Parameters<RecordStore['claim']>): Promise<Claim[]> {
        if (args[4]?.[0] !== rows[0].id || this.#isLost) return super.claim(...args);
        this.#isLost = true;
        proxy.loseReplies();
        const answer = super.claim(...args);
        answer.catch(() => {});
        await until(async () => (await statuses(admin)).Processing === 2, 'it is claimed');
        proxy.reset();
        return answer;
      }
    }
    const table = await openTable(admin, pagesWorkflow({ orderBy: 'url' }) as Workflow);
    const claimer = newClaimer(new Losing(sessions, table));
    expect(urls(await claimer.claim())).toEqual(['a']);
    expect(urls(await claimer.claim())).toEqual(['b']);
  });

  it('is released, also when the database executes it after later claims', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 0);
    await admin.query("INSERT INTO pages (url) VALUES ('a'), ('b'), ('c')");
    const table = await openTable(admin, pagesWorkflow({ orderBy: 'url' }) as Workflow);
    // The client gave up on this claim; the database still executes it.
    const slow = await postgres.client();
    await slow.query('BEGIN');
    class Impatient extends RecordStore {
      #isLost = false;
      override async claim(...args: Parameters<RecordStore['claim']>): Promise<Claim[]> {
        if (this.#isLost) return super.claim(args[0], 1, args[2], args[3], args[4]);
        this.#isLost = true;
        await slow.query(table.queries.claim, [table.workflowId, 1, args[0], args[2], null]);
        throw new Error('Query read timeout');
      }
    }
    const clock = new SkippingClock();
    const claimer = newClaimer(
      new Impatient(new Sessions({ pool: admin, clock: systemClock }), table),
      clock,
    );
    await expect(claimer.claim()).rejects.toThrow('Query read timeout');
    expect(urls(await claimer.claim())).toEqual(['b']);
    await slow.query('COMMIT');
    // Neither known nor later claims are released.
    expect(urls(await claimer.claim())).toEqual(['a']);
    expect(urls(await claimer.claim())).toEqual(['c']);
    clock.skip(120_000);
    expect(await claimer.claim()).toEqual([]);
    expect(await statuses(admin)).toEqual({ Processing: 3 });
  });
});

describeOnePostgres('a claim of large rows', (postgres) => {
  it('keeps what fits into memory, releases the rest, and takes fewer rows next time', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 0);
    // 16 M characters fit; each row has 5 M. The database stores them compressed.
    await admin.query(
      "INSERT INTO pages (url) SELECT i || repeat('x', 5000000) FROM generate_series(1, 9) AS i",
    );
    const store = await storeOf(admin, pagesWorkflow({ orderBy: 'url' }));
    const claimer = newClaimer(store);
    const claimed = async () =>
      urls(await claimer.claim()).map((url) => [Number.parseInt(url, 10), url.length]);
    const rows = (...ids: number[]) => ids.map((id) => [id, 5_000_001]);
    expect(claimer.batchSize).toBe(100);
    expect(await claimed()).toEqual(rows(1, 2, 3, 4));
    expect(await statuses(admin)).toEqual({ Queued: 5, Processing: 4 });
    expect(claimer.batchSize).toBe(3);
    expect(await claimed()).toEqual(rows(5, 6, 7));
    expect(await claimed()).toEqual(rows(8, 9));
    expect(await claimed()).toEqual([]);
    expect(claimer.batchSize).toBe(100);
  });
});
