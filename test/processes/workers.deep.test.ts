/** Workers of one `serve`: what they share, and what passes between them. */
import { execFileSync } from 'node:child_process';
import { Pool } from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.js';
import { guardPool } from '../../src/records/sessions.js';
import { startReceiver } from '../observe/alerts-receiver.js';
import { describeOneEngine } from '../support/engines.js';
import { allocate, until } from '../support/processes.js';
import { jobsTable, recordsModule } from '../support/records-module.js';
import { listen } from '../support/sse.js';
import { connectTo, isAlive, onlyWorker, pidsOf, podCount, startWorkers } from '../support/workers.js';

describeOneEngine('workers', (engine) => {
  it('a second signal ends all of them at once', async () => {
    const group = await startWorkers({
      REDIS_URL: engine.url,
      REQUEST_TIMEOUT: '1m',
      REDIS_COMMAND_TIMEOUT: '1m',
      SHUTDOWN_TIMEOUT: '1h',
    });
    await engine.pause();
    const unanswered = allocate(group, 'call');
    await group.get('/health');
    process.kill(group.pid, 'SIGTERM');
    await until('all stop', () => group.logged('stopping; finishing requests in flight').length === 3);
    expect(await group.stop()).toBe(1);
    await until('no worker is left', () => !pidsOf(group).some(isAlive));
    expect((await unanswered).status).toBe(0);
    await engine.resume();
  });

  it('one that hangs is killed and replaced, and does not keep the others from stopping', {
    timeout: 180_000,
  }, async () => {
    const group = await startWorkers({ REDIS_URL: engine.url, SHUTDOWN_TIMEOUT: '1s' });
    process.kill(Number(pidsOf(group)[1]), 'SIGSTOP');
    await until(
      'it is killed',
      () => group.logged('worker does not answer; killing it').length === 1,
      90_000,
    );
    await until('it is replaced', () => group.logged('smart-router is listening').length === 3);
    const latest = Number(group.logged('worker started').at(-1)?.pid);
    process.kill(latest, 'SIGSTOP');
    expect(await group.stop()).toBe(0);
    expect(isAlive(latest)).toBe(false);
  });

  it('a starting worker exits when the primary is killed', async () => {
    const group = await startWorkers({ REDIS_URL: engine.url, SHUTDOWN_TIMEOUT: '1s' });
    process.kill(Number(pidsOf(group)[1]), 'SIGKILL');
    await until('it is started again', () => group.logged('worker started').length === 3);
    // From here on the primary answers nothing: the worker waits for the port.
    process.kill(group.pid, 'SIGSTOP');
    await until('it has begun', () => group.logged('connected to the store').length === 3);
    await group.signal('SIGKILL');
    await until('no worker is left', () => !pidsOf(group).some(isAlive), 30_000);
  });

  it.runIf(process.platform === 'linux')(
    'one that cannot be started is started later, and the log says why',
    async () => {
      const group = await startWorkers({ REDIS_URL: engine.url });
      const limitFiles = (count: number) =>
        execFileSync('prlimit', ['--pid', String(group.pid), `--nofile=${count}:`]);
      limitFiles(10);
      process.kill(Number(pidsOf(group)[1]), 'SIGKILL');
      const reasons = () => group.logged('worker ended; starting it again').map(({ reason }) => reason);
      await until('a start has failed', () => reasons().length > 1);
      expect(reasons()[1]).toMatch(/^worker \d could not be started: .*EMFILE/);
      limitFiles(1000);
      await until('it is started', () => group.logged('smart-router is listening').length === 3);
    },
  );

  it('wake waiting calls and event streams of each other', async () => {
    const hold = { max_wait: '1m', max_waiting: 10 };
    const tiers = { gold: { type: 'exclusive', target: podCount } };
    const group = await startWorkers({
      REDIS_URL: engine.url,
      TIER_CONFIG: JSON.stringify({ tiers, default_chain: ['gold'], hold }),
    });
    const [first, second] = [await connectTo(group, 1), await connectTo(group, 2)];
    const sids = Array.from({ length: podCount }, (_, i) => `call-${i}`);
    for (const sid of sids)
      expect(await first('/api/v1/allocate', { call_sid: sid })).toHaveProperty('fence');
    const streams = [];
    for (const number of [1, 2] as const)
      streams.push(await onlyWorker(group, number, () => listen(`${group.url}/api/v1/events`)));
    const waiting = first('/api/v1/allocate', { call_sid: 'late', wait: '1m' });
    await until('it waits', async () => (await engine.redis.zcard('voice:waiting:due')) === 1);
    await second('/api/v1/release', { call_sid: 'call-0' });
    expect(await waiting).toMatchObject({ success: true });
    const assigned = (types: { type: string }[]) => types.filter(({ type }) => type === 'call_assigned');
    for (const { events, close } of streams) {
      await until('the stream has it', () => assigned(events).length === 1);
      close();
    }
  });

  it('alerts of records reach the webhook although another worker leads', { timeout: 240_000 }, async () => {
    const hook = await startReceiver();
    onTestFinished(() => hook.end());
    const postgres = await startEmbeddedPostgres();
    onTestFinished(() => postgres.stop());
    const pool = new Pool({ connectionString: postgres.url, max: 1 });
    guardPool(pool);
    onTestFinished(() => pool.end());
    await jobsTable(pool);
    const group = await startWorkers({
      ...{ REDIS_URL: engine.url, DATABASE_URL: postgres.url, RECORDS_MODULE: recordsModule() },
      ...{ LEADER_ELECTION_DURATION: '1500ms', LEADER_ELECTION_RENEW_DEADLINE: '1s' },
      ...{ LEADER_ELECTION_RETRY_PERIOD: '200ms', ALERT_INTERVAL: '200ms', ALERT_WEBHOOK_URL: hook.url },
      ...{ LEADER_LOSS: 'follow', ZOMBIE_CLEANUP_ENABLED: 'false' },
    });
    const second = await connectTo(group, 2);
    await onlyWorker(group, 2, () =>
      until('worker 2 leads', async () => (await second('/api/v1/status')).leader === 'box/2'),
    );
    await pool.query(
      "INSERT INTO jobs (what, status, updated_at) SELECT 'ok', 'Processing', now() - interval '5 h' FROM generate_series(1, 60)",
    );
    const sent = () => hook.received.filter(({ body }) => body.condition === 'records.stuck_critical');
    // Records are counted once a minute.
    await until('the alert is sent', () => sent().length > 0, 180_000);
    expect(sent()).toMatchObject([{ body: { source: 'box/1' } }]);
  });

  it('have one store, one database and one records process, which all of them can ask', {
    timeout: 120_000,
  }, async () => {
    const group = await startWorkers({ REDIS_URL: 'embedded', DATABASE_URL: 'embedded' });
    const workers = [await connectTo(group, 1), await connectTo(group, 2)];
    const askBoth = (path: string, body?: unknown) => Promise.all(workers.map((ask) => ask(path, body)));
    expect((await allocate(group, 'call')).status).toBe(200);
    // The database is up before it is migrated and its workflows are open.
    await until(
      'every worker can ask the records process',
      async () => (await askBoth('/api/v1/records')).every(({ workflows }) => workflows?.length === 2),
      60_000,
    );
    await until('every worker shows the database as up', async () => {
      const statuses = await askBoth('/api/v1/status');
      return statuses.every(({ records }) => records.database === 'up');
    });
    for (const answer of await askBoth('/api/v1/allocate', { call_sid: 'call' }))
      expect(answer).toMatchObject({ was_existing: true });
    // Typed errors, too.
    for (const answer of await askBoth('/api/v1/records/nothing/stuck'))
      expect(answer).toMatchObject({ code: 'workflow_not_found' });
    const processes = () => group.logged('records process started');
    expect(processes()).toMatchObject([{ worker: 1 }]);

    // Worker 1 takes its records process along; the data stays.
    process.kill(Number(pidsOf(group)[0]), 'SIGKILL');
    await until(
      'worker 2 can ask the records process of its successor',
      async () => {
        const answer = await workers[1]?.('/api/v1/records');
        if (answer.code !== undefined) expect(answer).toMatchObject({ code: 'database_unavailable' });
        return processes().length === 2 && answer.workflows?.length === 2;
      },
      60_000,
    );
    await until('the first has ended', () => !isAlive(Number(processes()[0]?.pid)));
    expect((await allocate(group, 'call')).body.was_existing).toBe(true);
    expect(await group.stop()).toBe(0);
    expect([...pidsOf(group), ...processes().map(({ pid }) => Number(pid))].filter(isAlive)).toEqual([]);
  });
});
