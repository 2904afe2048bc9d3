/** Real processes that are killed, and a database that restarts repeatedly. Guarantee 10. */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Pool } from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import { keepHistory, mostOften, statuses, teamTable, temporaryFolder } from './fixture.js';

const file = fileURLToPath(new URL('./worker-process.mjs', import.meta.url));

interface WorkerProcess {
  output: string;
  readonly hasEnded: boolean;
  end(signal: NodeJS.Signals): Promise<number | null>;
}

/** Ends with its test. */
function startWorker(told: object): WorkerProcess {
  const child: ChildProcess = spawn(process.execPath, [file, JSON.stringify(told)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const worker: WorkerProcess = {
    output: '',
    get hasEnded() {
      return child.exitCode !== null || child.signalCode !== null;
    },
    async end(signal) {
      // Before it has a handler, SIGTERM ends it as SIGKILL does.
      if (signal === 'SIGTERM')
        await until(() => worker.output.includes('ready to be stopped'), 'it has started');
      child.kill(signal);
      await ended;
      return child.exitCode;
    },
  };
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => {
      worker.output += chunk.toString();
    });
  onTestFinished(() => worker.end('SIGKILL').then(() => {}));
  return worker;
}

const completed = async (pool: Pool) => (await statuses(pool)).Completed ?? 0;

/** Every record went from Processing to Completed once, and to nowhere else but back to Queued. */
async function expectFinishedOnce(pool: Pool, records: number): Promise<void> {
  expect(await statuses(pool)).toEqual({ Completed: records });
  expect(await mostOften(pool, 'Processing', 'Completed')).toBe(1);
  const { rows } = await pool.query("SELECT DISTINCT was || ' ' || became AS change FROM history ORDER BY 1");
  expect(
    rows
      .map(({ change }) => change)
      .filter(
        (change) => !['Processing Completed', 'Processing Queued', 'Queued Processing'].includes(change),
      ),
  ).toEqual([]);
  expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
}

describeOnePostgres('processes', (postgres) => {
  it('killed repeatedly by one record: only that record fails', {
    timeout: 120_000,
  }, async () => {
    const pool = postgres.pool();
    await teamTable(pool, 300);
    const poison = 'https://example.com/7';
    const told = {
      ...{ url: postgres.url, batchSize: 100, spoolFolder: temporaryFolder(), diesAt: poison, maxResets: 3 },
      // A worker that a busy machine delays is not dead.
      ...{ heartbeat: 100, deadAfter: 3000 },
    };
    let worker = startWorker(told);
    await until(
      async () => {
        if (worker.hasEnded) worker = startWorker(told);
        // Skips the pause after a reset.
        await pool.query('UPDATE smart_router.claims SET not_before = now() WHERE not_before > now()');
        const { Completed = 0, Failed = 0 } = await statuses(pool);
        return Completed + Failed === 300;
      },
      'all are finished',
      90_000,
    );
    const { rows } = await pool.query("SELECT url, error FROM pages WHERE status = 'Failed'");
    expect(rows).toEqual([{ url: poison, error: 'Stuck in Processing state after 3 resets' }]);
    const { rows: deaths } = await pool.query(
      `SELECT outcome, resets FROM smart_router.resets
       WHERE record_id = (SELECT id::text FROM pages WHERE url = $1) ORDER BY id`,
      [poison],
    );
    expect(deaths.map(({ outcome, resets }) => `${outcome} ${resets}`)).toEqual([
      'requeued 0',
      'requeued 1',
      'requeued 2',
      'failed 3',
    ]);
    expect(await worker.end('SIGTERM')).toBe(0);
  });

  it('killed at random: every record is finished once, none is stuck', { timeout: 240_000 }, async () => {
    const pool = postgres.pool();
    const records = 20_000;
    await teamTable(pool, records);
    await keepHistory(pool);
    await pool.query('CREATE TABLE effects (page uuid, pid integer)');
    const told = {
      ...{ url: postgres.url, batchSize: 50, usesTx: true, spoolFolder: temporaryFolder() },
      ...{ heartbeat: 150, deadAfter: 3000 },
    };
    const workers = [0, 1, 2].map(() => startWorker(told));
    const all = [...workers];
    let kills = 0;
    for (; kills < 40; kills += 1) {
      const before = await completed(pool);
      const most = before + 1200 + Math.random() * 1200;
      if (most > records * 0.9) break;
      await until(async () => (await completed(pool)) > most, 'some more are done');
      const victim = Math.floor(Math.random() * workers.length);
      await workers[victim]?.end('SIGKILL');
      const next = startWorker(told);
      workers[victim] = next;
      all.push(next);
    }
    expect(kills).toBeGreaterThan(5);
    await until(async () => (await completed(pool)) === records, 'all are done', 90_000);
    await expectFinishedOnce(pool, records);
    // A handler's writes are kept once per claim, and a claim that ended without a finish shows as a reset.
    const { rows } = await pool.query(`
      SELECT count(*)::integer AS too_many FROM (SELECT page, count(*) AS n FROM effects GROUP BY page) AS e
      WHERE n > 1 + (SELECT count(*) FROM smart_router.resets WHERE record_id = e.page::text)`);
    expect(rows).toEqual([{ too_many: 0 }]);
    const { rows: resets } = await pool.query(
      'SELECT count(*)::integer AS n, max(resets) AS most, count(DISTINCT reason) AS reasons, min(reason) AS reason FROM smart_router.resets',
    );
    expect(resets[0].n).toBeGreaterThan(kills);
    expect(resets[0]).toMatchObject({ reasons: '1', reason: 'dead_worker' });
    expect(resets[0].most).toBeLessThan(10);
    expect(await Promise.all(workers.map((worker) => worker.end('SIGTERM')))).toEqual([0, 0, 0]);
    expect(all.filter(({ output }) => output.includes('ZOMBIE'))).toEqual([]);
  });

  it('killed at random with a limit and retries: never above the limit, and every record ends', {
    timeout: 120_000,
  }, async () => {
    const pool = postgres.pool();
    const records = 600;
    await teamTable(pool, records);
    await pool.query(`
      ALTER TABLE pages ADD customer integer;
      UPDATE pages SET customer = split_part(url, '/', 4)::integer % 6;
      CREATE INDEX ON pages (customer, updated_at) WHERE status = 'Queued';
      CREATE TABLE runs (page uuid, at_once integer)`);
    const told = {
      ...{ url: postgres.url, batchSize: 4, spoolFolder: temporaryFolder(), heartbeat: 150, deadAfter: 3000 },
      ...{ limit: { key: 'customer', max: 2 }, retry: { max: 3, backoff: 200 }, maxResets: 100 },
    };
    const workers = [0, 1, 2].map(() => startWorker(told));
    for (let kills = 0; kills < 8; kills += 1) {
      const most = (await completed(pool)) + 20 + Math.random() * 40;
      if (most > records * 0.9) break;
      await until(async () => (await completed(pool)) > most, 'some more are done');
      const victim = Math.floor(Math.random() * workers.length);
      await workers[victim]?.end('SIGKILL');
      workers[victim] = startWorker(told);
    }
    await until(async () => (await completed(pool)) === records, 'all are done', 60_000);
    const { rows } = await pool.query(
      'SELECT max(at_once) AS most, count(*) > $1::integer AS is_more, count(DISTINCT page)::int AS pages FROM runs',
      [records],
    );
    expect(rows).toEqual([{ most: 2, is_more: true, pages: records }]);
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
    expect(await Promise.all(workers.map((worker) => worker.end('SIGTERM')))).toEqual([0, 0, 0]);
  });

  it('the last trace of a killed process is found with its record', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const told = {
      url: postgres.url,
      batchSize: 1,
      spoolFolder: temporaryFolder(),
      heartbeat: 150,
      deadAfter: 1200,
    };
    const hanging = startWorker({ ...told, hangs: true });
    const trace = 'hangs at https://example.com/1';
    await until(
      async () =>
        (await pool.query('SELECT FROM smart_router.claims WHERE trace = $1', [trace])).rowCount === 1,
      'the note is kept',
    );
    await hanging.end('SIGKILL');
    startWorker(told);
    await until(async () => (await completed(pool)) === 1, 'another has done it');
    expect((await pool.query('SELECT reason, outcome, trace FROM smart_router.resets')).rows).toEqual([
      { reason: 'dead_worker', outcome: 'requeued', trace },
    ]);
  });

  it('with a database that restarts repeatedly: nothing is lost or finished twice', {
    timeout: 180_000,
  }, async () => {
    const pool = postgres.pool();
    const records = 8000;
    await teamTable(pool, records);
    await keepHistory(pool);
    const told = {
      ...{ url: postgres.url, batchSize: 50, usesTx: false, spoolFolder: temporaryFolder() },
      ...{ heartbeat: 300, deadAfter: 8000 },
    };
    const workers = [startWorker(told), startWorker(told)];
    for (let restarts = 0; restarts < 8; restarts += 1) {
      const before = await until(() => completed(pool), 'it answers');
      await until(
        async () => (await completed(pool)) >= Math.min(before + 250, records),
        'some more are done',
      );
      await postgres.restart(restarts % 2 === 0 ? 'crash' : 'clean');
    }
    await until(async () => (await completed(pool)) === records, 'all are done', 90_000);
    await expectFinishedOnce(pool, records);
    // No worker was declared dead.
    expect((await pool.query('SELECT reason, worker FROM smart_router.resets')).rows).toEqual([]);
    expect(await Promise.all(workers.map((worker) => worker.end('SIGTERM')))).toEqual([0, 0]);
    const said = workers.map(({ output }) => output).join('');
    expect(said).toMatch(/no session to finish records|claim failed/);
    expect(said).not.toMatch(/ZOMBIE|late finishes/);
  });
});
