/** The weekly report: its numbers, its words, once a week from one replica. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { createLogger, silentLogger } from '../../src/observe/log.js';
import { createRecordLoop, createRecovery, migrate } from '../../src/records/index.js';
import { weeklyReport } from '../../src/records/report.js';
import { reportMarkdown } from '../../src/records/report-markdown.js';
import { Reporter, type ReporterOptions } from '../../src/records/reporter.js';
import { startReceiver } from '../observe/alerts-receiver.js';
import { describePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import { pagesWorkflow, statuses, teamTable } from './fixture.js';

const monday = new Date('2025-11-17T00:00:00Z');
const before = new Date('2025-11-10T00:00:00Z');

interface Reset {
  workflow?: string;
  id: string;
  at: string;
  reason?: string;
  outcome?: string;
  seconds?: number;
  worker?: string;
  trace?: string;
}

async function resets(pool: Pool, rows: readonly Reset[]): Promise<void> {
  for (const { workflow = 'pages', id, at, reason = 'unclaimed', outcome = 'requeued', ...more } of rows) {
    await pool.query('INSERT INTO smart_router.workflows (name) VALUES ($1) ON CONFLICT DO NOTHING', [
      workflow,
    ]);
    await pool.query(
      `INSERT INTO smart_router.resets (workflow, record_id, at, reason, outcome, resets, stuck_seconds, worker, trace)
       SELECT id, $2, $3, $4, $5, 0, $6, $7, $8 FROM smart_router.workflows WHERE name = $1`,
      [workflow, id, at, reason, outcome, more.seconds ?? 60, more.worker, more.trace],
    );
  }
}

describePostgres('the weekly report', (postgres) => {
  const reporter = (pool: Pool, more: Partial<ReporterOptions> = {}) =>
    new Reporter({ pool, clock: systemClock, log: silentLogger, source: 'router-0', ...more });

  /** As if our schema had been there for a month. */
  async function installed(): Promise<Pool> {
    const pool = postgres.pool();
    await migrate(pool);
    await pool.query("UPDATE smart_router.migrations SET at = '2025-10-01'");
    return pool;
  }

  it('counts by workflow, reason, outcome and day within the week', async () => {
    const pool = await installed();
    await resets(pool, [
      { id: '1', at: '2025-11-10T00:00:00Z', reason: 'dead_worker' },
      { id: '2', at: '2025-11-10T23:59:59Z', reason: 'dead_worker', outcome: 'failed' },
      { id: '3', at: '2025-11-16T23:59:59Z', reason: 'by_hand' },
      { id: '4', at: '2025-11-17T00:00:00Z' },
      { id: '5', at: '2025-11-03T00:00:00Z' },
      { id: '6', at: '2025-11-02T23:59:59Z' },
      { id: '7', at: '2025-11-12T00:00:00Z', workflow: 'sitemaps', outcome: 'held' },
    ]);
    const report = await weeklyReport(pool, { since: before, until: monday });
    expect(report).toMatchObject({
      since: '2025-11-10T00:00:00.000Z',
      until: '2025-11-17T00:00:00.000Z',
      records: 4,
      before: 1,
      byHand: 1,
    });
    expect(report.workflows).toMatchObject([
      {
        workflow: 'pages',
        records: 3,
        before: 1,
        byReason: { dead_worker: 2, by_hand: 1 },
        byOutcome: { requeued: 2, failed: 1 },
        byDay: [
          { day: '2025-11-10', records: 2 },
          { day: '2025-11-16', records: 1 },
        ],
      },
      { workflow: 'sitemaps', records: 1, byOutcome: { held: 1 } },
    ]);
  });

  it('names the record stuck longest, and repeatedly reset records with their last trace', async () => {
    const pool = await installed();
    await resets(pool, [
      { id: 'a', at: '2025-11-11T01:00:00Z', seconds: 100, worker: 'h1 1', trace: 'fetching x' },
      { id: 'a', at: '2025-11-11T02:00:00Z', seconds: 100, worker: 'h2 1', trace: 'fetching y' },
      { id: 'a', at: '2025-11-11T03:00:00Z', seconds: 100, worker: 'h2 1', outcome: 'failed' },
      { id: 'b', at: '2025-11-11T01:00:00Z', seconds: 9000, trace: 'parsing' },
      { id: 'c', at: '2025-11-11T01:00:00Z' },
      { id: 'c', at: '2025-11-11T02:00:00Z' },
      { id: 'd', at: '2025-11-01T01:00:00Z', seconds: 99_999 },
    ]);
    const report = await weeklyReport(pool, { since: before, until: monday, most: 1 });
    expect(report.workflows[0]?.longestStuck).toMatchObject({
      id: 'b',
      stuckSeconds: 9000,
      trace: 'parsing',
    });
    expect(report.workflows[0]?.repeatOffenders).toEqual([
      {
        id: 'a',
        times: 3,
        lastAt: '2025-11-11T03:00:00.000Z',
        workers: 2,
        reason: 'unclaimed',
        outcome: 'failed',
        trace: 'fetching y',
      },
    ]);
    const all = await weeklyReport(pool, { since: before, until: monday });
    expect(all.workflows[0]?.repeatOffenders.map(({ id }) => id)).toEqual(['a', 'c']);
  });

  it('covers the last seven days by the database’s clock by default', async () => {
    const pool = await installed();
    await resets(pool, [
      { id: '1', at: new Date(systemClock.now() - 6 * 86_400_000).toISOString() },
      { id: '2', at: new Date(systemClock.now() - 8 * 86_400_000).toISOString() },
    ]);
    expect(await weeklyReport(pool)).toMatchObject({ records: 1, before: 1 });
    await expect(weeklyReport(pool, { since: monday, until: before })).rejects.toThrow('before its `until`');
  });

  it('reports a dead worker, its requeued record and its late finish', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const late = reporter(pool);
    let finish = () => {};
    const gate = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const process = async (_: unknown, { trace }: { trace(note: string): void }) => {
      trace('half way');
      await gate;
    };
    const options = { pool, log: silentLogger, observer: late.observer };
    const dead = createRecordLoop({
      ...options,
      workflows: [pagesWorkflow({ process })],
      heartbeat: { every: '1h' },
    });
    const run = dead.runOnce();
    await until(
      async () =>
        (await pool.query("SELECT FROM smart_router.claims WHERE trace = 'half way'")).rowCount === 2,
      'it has left its notes',
    );
    await pool.query("UPDATE smart_router.workers SET heartbeat_at = now() - interval '1 minute'");
    const recovery = createRecovery({ pool, workflows: [pagesWorkflow()], log: silentLogger });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 2 });
    finish();
    expect(await run).toMatchObject({ rejected: 2 });
    expect(await late.runOnce()).toMatchObject({ late_finishes: 2 });
    const report = await weeklyReport(pool, { until: new Date(systemClock.now() + 3_600_000) });
    expect(report.workflows).toMatchObject([
      {
        workflow: 'pages',
        byReason: { dead_worker: 2 },
        longestStuck: { trace: 'half way' },
        lateFinishes: { records: 2, before: 0 },
      },
    ]);
    expect(await statuses(pool)).toEqual({ Queued: 2 });
    await dead.stop();
  });

  it('late finishes are null without a counting process, and zero with one', async () => {
    const pool = await installed();
    await resets(pool, [{ id: '1', at: '2025-11-11T01:00:00Z' }]);
    const [unknown] = (await weeklyReport(pool)).workflows;
    expect(unknown?.lateFinishes).toBeNull();
    const counting = reporter(pool);
    counting.observer.claimed?.('pages', 5);
    counting.observer.rejected?.('pages', 3);
    await counting.runOnce({ now: before });
    counting.observer.rejected?.('pages', 1);
    await counting.stop();
    const [known] = (await weeklyReport(pool)).workflows;
    expect(known?.lateFinishes).toEqual({ records: 4, before: 0 });
  });

  it('late finishes that could not be written are kept for the next round', async () => {
    const pool = await installed();
    const counting = reporter(pool);
    counting.observer.rejected?.('pages', 3);
    await pool.query('ALTER TABLE smart_router.late_finishes RENAME TO gone');
    await expect(counting.runOnce()).rejects.toThrow('late_finishes');
    await pool.query('ALTER TABLE smart_router.gone RENAME TO late_finishes');
    expect(await counting.runOnce()).toMatchObject({ late_finishes: 3 });
  });

  it('is delivered once a week, by one of several replicas, to log, folder and webhook', async () => {
    const pool = await installed();
    await resets(pool, [{ id: '1', at: '2025-11-11T01:00:00Z' }]);
    const receiver = await startReceiver();
    postgres.onEnd(() => receiver.end());
    const folder = mkdtempSync(join(tmpdir(), 'report-'));
    postgres.onEnd(() => rmSync(folder, { recursive: true }));
    const lines: Record<string, unknown>[] = [];
    const destination = { write: (text: string) => void lines.push(JSON.parse(text)) };
    const log = createLogger({ level: 'info', format: 'json', destination });
    const to = { folder, webhook: { url: receiver.url, secret: 'hush' } };
    const replicas = [1, 2, 3].map((n) => reporter(pool, { source: `router-${n}`, log, to }));
    const now = new Date('2025-11-17T08:00:00Z');
    const counts = await Promise.all(replicas.map((replica) => replica.runOnce({ now })));
    expect(counts.reduce((sum, { reports }) => sum + reports, 0)).toBe(1);
    for (const day of ['2025-11-17T09:00:00Z', '2025-11-19T08:00:00Z', '2025-11-23T23:59:59Z'])
      for (const replica of replicas)
        expect(await replica.runOnce({ now: new Date(day) })).toMatchObject({ reports: 0 });
    expect(receiver.received).toHaveLength(1);
    expect(receiver.received[0]?.headers['smart-router-signature']).toMatch(/^t=\d+,v1=[0-9a-f]{64}$/);
    expect(receiver.received[0]?.body).toMatchObject({
      event: 'weekly_report',
      report: { since: '2025-11-10T00:00:00.000Z', records: 1 },
    });
    expect(readdirSync(folder).sort()).toEqual([
      'stuck-records-2025-11-17.json',
      'stuck-records-2025-11-17.md',
    ]);
    const { report, text } = receiver.received[0]?.body ?? {};
    expect(JSON.parse(readFileSync(join(folder, 'stuck-records-2025-11-17.json'), 'utf8'))).toEqual(report);
    expect(readFileSync(join(folder, 'stuck-records-2025-11-17.md'), 'utf8')).toBe(text);
    expect(lines.filter(({ msg }) => msg === 'weekly report of stuck records')).toHaveLength(1);
    const next = new Date('2025-11-24T00:00:01Z');
    expect(await replicas[0]?.runOnce({ now: next })).toMatchObject({ reports: 1 });
    const { rows } = await pool.query('SELECT report FROM smart_router.reports ORDER BY until');
    expect(rows.map((row) => row.report.records)).toEqual([1, 0]);
  });

  it('after a failed delivery another replica takes it 15 minutes later', async () => {
    const pool = await installed();
    const receiver = await startReceiver();
    postgres.onEnd(() => receiver.end());
    receiver.answers = [{ status: 500 }];
    const to = { webhook: { url: receiver.url } };
    const lines: Record<string, unknown>[] = [];
    const destination = { write: (text: string) => void lines.push(JSON.parse(text)) };
    const log = createLogger({ level: 'info', format: 'json', destination });
    await expect(reporter(pool, { to, log }).runOnce({ now: monday })).rejects.toThrow('response status 500');
    expect(lines.filter(({ msg }) => msg === 'weekly report of stuck records')).toHaveLength(1);
    const after = (minutes: number) => new Date(monday.getTime() + minutes * 60_000);
    const other = reporter(pool, { to, source: 'router-1' });
    expect(await other.runOnce({ now: after(14) })).toMatchObject({ reports: 0 });
    expect(await other.runOnce({ now: after(16) })).toMatchObject({ reports: 1 });
    expect(receiver.received).toHaveLength(2);
  });

  it('a new installation does not report the week before it', async () => {
    const pool = postgres.pool();
    await migrate(pool);
    // The week of the installation may end at any moment.
    const { rows } = await pool.query('SELECT min(at) AS now FROM smart_router.migrations');
    expect(await reporter(pool).runOnce(rows[0])).toMatchObject({ reports: 0 });
    const nextWeek = new Date(rows[0].now.getTime() + 7 * 86_400_000);
    expect(await reporter(pool).runOnce({ now: nextWeek })).toMatchObject({ reports: 1 });
  });

  it('as Markdown has a line for every workflow, with markup in traces escaped', async () => {
    const pool = await installed();
    await resets(pool, [
      { id: 'x|y', at: '2025-11-11T01:00:00Z', trace: 'a | b\n# not a title <b>' },
      { id: 'x|y', at: '2025-11-12T01:00:00Z', trace: 'a | b\n# not a title <b>' },
      { id: '9', at: '2025-11-04T01:00:00Z' },
    ]);
    await pool.query("INSERT INTO smart_router.workflows (name) VALUES ('quiet')");
    const text = reportMarkdown(await weeklyReport(pool, { since: before, until: monday }));
    expect(text).toContain('# Stuck records, 2025-11-10 to 2025-11-17\n');
    expect(text).toContain('**2 records** recovered; the week before: 1 (+100 %). Manual interventions: 0.');
    expect(text).toContain('| pages | 2 | 1 | 2 | 0 | 0 | 0 | not counted |');
    expect(text).toContain('| quiet | 0 | 0 | 0 | 0 | 0 | 0 | not counted |');
    expect(text).toContain('| x\\|y | 2 | 0 | no claim | requeued | a \\| b \\# not a title \\<b\\> |');
    expect(text).not.toContain('## quiet');
  });

  it('reports a week without stuck records', async () => {
    const pool = await installed();
    await pool.query("INSERT INTO smart_router.workflows (name) VALUES ('quiet')");
    const text = reportMarkdown(await weeklyReport(pool, { since: before, until: monday }));
    expect(text).toContain('No stuck record, as in the week before. Manual interventions: 0.');
  });
});
