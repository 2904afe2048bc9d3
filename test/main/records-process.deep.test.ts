/** The records process of a router: its crashes, blocks and lack of memory do not affect calls. */
import { readFileSync } from 'node:fs';
import { Duplex, PassThrough } from 'node:stream';
import { serialize } from 'node:v8';
import type { Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { AppError, ConfigError } from '../../src/errors.js';
import { Channel, readMessage, receivedError, sentError } from '../../src/main/channel.js';
import { checkLabels, ReportBuffer, readReport } from '../../src/main/records-report.js';
import { routerEnv, type Started, start, useBinary } from '../cli/support.js';
import { type Engine, embeddedValkey } from '../support/engines.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobOf, jobsTable, recordsModule } from '../support/records-module.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { until } from '../support/until.js';

const binary = useBinary();
const patienceMs = 25_000;

const startsIn = (text: string) =>
  [...text.matchAll(/"pid":(\d+),"heap_mb":\d+,"msg":"records process started"/g)].map(([, pid]) =>
    Number(pid),
  );

function isAlive(pid: number): boolean {
  try {
    // A zombie has ended; its parent has not read its exit code yet.
    return !/^\d+ \(.*\) [ZX]/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/** `smart-router serve`; killed with the test. */
async function serve(env: NodeJS.ProcessEnv): Promise<Started & { url: string; output(): string }> {
  const started = start(binary, ['serve'], { env: { ...routerEnv, ...env } });
  onTestFinished(async () => {
    started.child.kill('SIGKILL');
    await started.ended;
  });
  let output = '';
  started.child.stdout?.on('data', (text: string) => {
    output += text;
  });
  const listening = () => /"url":"([^"]+)".*"msg":"smart-router is listening"/.exec(output)?.[1];
  return { ...started, url: await until(listening, 'it listens', patienceMs), output: () => output };
}

/** As the channel writes it. */
function framed(message: unknown): Buffer {
  const body = serialize(message);
  const header = Buffer.alloc(4);
  header.writeUInt32BE(body.length);
  return Buffer.concat([header, body]);
}

const emptyReport = { state: undefined, events: [], lines: [], dropped: 0 };
const reportOf = (report: object) => ({ name: 'report', args: [report] });

const allocate = (url: string) =>
  fetch(`${url}/api/v1/allocate`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ call_sid: 'CA1' }),
  });

describeOnePostgres('the records process of a router', (postgres) => {
  let engine: Engine;
  let pool: Pool;
  let env: Record<string, string>;
  beforeAll(async () => {
    engine = await embeddedValkey();
  });
  afterAll(() => engine.stop());
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
    env = { DATABASE_URL: postgres.url, RECORDS_MODULE: recordsModule() };
  });

  const inProcess = async (more = {}, options = {}): Promise<TestRouter> => {
    const router = await startTestRouter(engine.url, { ...env, ...more }, options);
    postgres.onEnd(() => router.stop());
    return router;
  };
  const isOpen = async (router: TestRouter) =>
    (await router.get('/status')).body.records.error === null &&
    (await router.get('/status')).body.records.database === 'up';
  const isProcessing = async (id: string) => (await jobOf(pool, id)).status === 'Processing';
  const done = (id: string) =>
    until(async () => (await jobOf(pool, id)).status === 'Completed', 'the record is done', patienceMs);

  it('is restarted after a crash: records are down in between, calls are not affected', async () => {
    const router = await inProcess();
    await until(() => isOpen(router), 'the database is open', patienceMs);
    const [first = 0] = startsIn(router.logText());
    expect(first).not.toBe(process.pid);
    process.kill(first, 'SIGKILL');
    const down = await until(async () => {
      const { records } = (await router.get('/status')).body;
      return records.database === 'down' && records;
    }, 'records are down');
    expect(down).toMatchObject({
      error: 'the records process ended with SIGKILL',
      workflows: [{ name: 'jobs' }],
    });
    const refused = await router.get('/records');
    expect(refused).toMatchObject({ status: 503, body: { code: 'database_unavailable' } });
    expect(refused.headers['retry-after']).toBe('5');
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
    const [, second = 0] = await until(() => {
      const pids = startsIn(router.logText());
      return pids.length === 2 && pids;
    }, 'it is started again');
    expect(second).not.toBe(first);
    const crashes = router.logs().filter(({ msg }) => msg === 'loop crashed; restarting');
    expect(crashes).toEqual([expect.objectContaining({ loop: 'records-process', retry_in_ms: 1000 })]);
    expect((await router.get('/metrics')).text).toContain(
      'smart_router_loop_restarts_total{loop="records-process"} 1',
    );
    await done(await addJob(pool, 'ok'));
    // Typed errors cross from the process to the caller.
    expect(await router.get('/records/nothing/stuck')).toMatchObject({
      status: 404,
      body: { code: 'workflow_not_found' },
    });
  });

  it('that a handler blocks delays no call, shows as down, and is killed after the timeout or at a stop', async () => {
    const clock = new SkippingClock();
    const router = await inProcess({ SHUTDOWN_TIMEOUT: '500ms' }, { clock });
    const spinning = await addJob(pool, 'spin');
    await until(() => isProcessing(spinning), 'the handler runs', patienceMs);
    // All of them wait for an answer; the next one is refused.
    const waiting = Array.from({ length: 64 }, () => router.get('/records'));
    await until(async () => (await router.get('/records')).status === 503, 'the next one is refused');
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
    const seconds = async (count: number) => {
      for (let second = 0; second < count; second += 1) {
        clock.skip(1000);
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    await seconds(15);
    expect((await router.get('/status')).body.records).toMatchObject({
      database: 'down',
      error: expect.stringMatching(/^the records process has not responded for \d+ s/),
    });
    // The timeout of its workflow is 5 minutes, and the grace 30 s.
    await seconds(330);
    await until(() => router.logText().includes('records process does not respond; killed'), 'it is killed');
    for (const { status } of await Promise.all(waiting)) expect(status).toBe(503);
    await until(() => isOpen(router), 'another one runs', patienceMs);
    const next = await addJob(pool, 'spin');
    await until(() => isProcessing(next), 'the handler runs again', patienceMs);
    await router.stop();
    expect(router.logText()).toContain('records process did not stop in time; killed');
    await until(() => !startsIn(router.logText()).some(isAlive), 'no process is left');
  });

  it.each([
    ['bytes that are not a message', Buffer.from([0, 0, 0, 2, 1, 2])],
    [
      'a log line of an unknown level',
      framed(reportOf({ ...emptyReport, lines: ['{"level":"constructor"}'] })),
    ],
  ])('is killed and started again after %s: calls are not affected', async (_name, bytes) => {
    const text = `
      import { writeSync } from 'node:fs';
      const status = { column: 'status', queued: 'Queued', processing: 'Processing', completed: 'Completed', failed: 'Failed' };
      async function process(record) {
        for (const junk of [null, 'ready', { cmd: 'NODE_HANDLE' }]) globalThis.process.send?.(junk);
        globalThis.process.disconnect?.();
        if (record.what === 'attack') writeSync(3, Buffer.from('${bytes.toString('hex')}', 'hex'));
      }
      export const workflows = [{ name: 'jobs', table: 'jobs', status, error: 'error', touchedAt: 'updated_at', process }];`;
    const router = await inProcess({ RECORDS_MODULE: recordsModule(text) });
    await done(await addJob(pool, 'ok'));
    expect(startsIn(router.logText())).toHaveLength(1);
    await addJob(pool, 'attack');
    await until(() => startsIn(router.logText()).length === 2, 'it is started again', patienceMs);
    const errors = router.logs().filter(({ level }) => level === 'error');
    expect(errors).toEqual([
      expect.objectContaining({
        loop: 'records-process',
        retry_in_ms: 1000,
        err: expect.objectContaining({
          message: expect.stringMatching(/^the records process sent an invalid message and was killed: ./),
        }),
      }),
    ]);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
    await done(await addJob(pool, 'ok'));
  });

  it('logs why the database cannot be used, with the reason the database gave', async () => {
    const url = new URL(postgres.url);
    url.pathname = '/missing';
    const router = await inProcess({ DATABASE_URL: url.href });
    const line = await until(
      () => /^.*records are not processed.*$/m.exec(router.logText())?.[0],
      'the log says that records are not processed',
      patienceMs,
    );
    expect(JSON.parse(line).err).toEqual({
      name: 'SessionError',
      message: 'cannot use the database: database "missing" does not exist',
    });
  });

  it('that runs out of memory ends alone, and is restarted', async () => {
    const { url, output, shows } = await serve({ ...env, RECORDS_HEAP_MB: '64' });
    await addJob(pool, 'eat');
    await shows('the records process ended with SIGABRT');
    expect((await allocate(url)).status).toBe(200);
    await until(() => startsIn(output()).length === 2, 'it is started again', patienceMs);
  });

  it('ends at once with a killed router although a handler blocks it', async () => {
    const spinning = await addJob(pool, 'spin');
    const { child, output } = await serve(env);
    await until(() => isProcessing(spinning), 'the handler runs', patienceMs);
    const [pid = 0] = startsIn(output());
    expect(isAlive(pid)).toBe(true);
    child.kill('SIGKILL');
    await until(() => !isAlive(pid), 'it has ended');
  });

  it('leaves Ctrl-C to the router, and finishes running records', async () => {
    const waiting = await addJob(pool, 'wait');
    const { child, ended, output } = await serve(env);
    await until(() => isProcessing(waiting), 'the handler runs', patienceMs);
    const [pid = 0] = startsIn(output());
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.kill(pid, signal);
    child.kill('SIGINT');
    await until(() => output().includes('stopping; finishing requests in flight'), 'the router stops');
    await addJob(pool, 'done', { status: 'Completed' });
    expect((await ended).code).toBe(0);
    expect((await jobOf(pool, waiting)).status).toBe('Completed');
  });

  it('uses the embedded database of its router, which survives its crash and ends with the router', async () => {
    const { child, output } = await serve({ DATABASE_URL: 'embedded' });
    const migrated = () => output().match(/database migrated/g)?.length ?? 0;
    const runs = () => output().match(/record loop started/g)?.length ?? 0;
    await until(() => runs() === 1, 'the loop runs', patienceMs);
    process.kill(startsIn(output())[0] ?? 0, 'SIGKILL');
    await until(() => runs() === 2, 'the loop runs again', patienceMs);
    // A new database would have needed the migrations again.
    expect(migrated()).toBe(1);
    const list = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8');
    const children = list.trim().split(' ').map(Number);
    expect(children.length).toBeGreaterThanOrEqual(2);
    child.kill('SIGKILL');
    await until(() => !children.some(isAlive), 'nothing is left', patienceMs);
  });
});

describe('between a router and its records process', () => {
  it('errors keep their type, code and details', () => {
    const details = { retryAfterSeconds: 5, problems: ['a', 'b'] };
    const cross = (error: unknown) => receivedError(structuredClone(sentError(error)));
    const app = cross(new AppError('database_unavailable', 'gone', { ...details, cause: new Error('x') }));
    expect(app).toBeInstanceOf(AppError);
    expect(app).toMatchObject({ code: 'database_unavailable', status: 503, message: 'gone', details });
    expect(cross(new ConfigError(['a', 'b']))).toMatchObject({ name: 'ConfigError', problems: ['a', 'b'] });
    const other = new TypeError('odd');
    expect(cross(other)).toMatchObject({ name: 'TypeError', message: 'odd', stack: other.stack });
    expect(cross('text')).toMatchObject({ name: 'Error', message: 'text' });
  });

  it.each([
    [null],
    ['ready'],
    [[]],
    [{ name: 'constructor', args: [] }],
    [{ name: 'report' }],
    [{ name: 'report', args: [], id: 'x' }],
    [{ name: 'report', args: new Array(2 ** 32 - 1) }],
    [{ value: 1 }],
    [{ id: 1, error: null }],
    [{ id: 1, error: { name: 'AppError', message: 'x', code: 'toString' } }],
  ])('rejects the invalid message %#', (message) => {
    expect(() => readMessage(message, { report: () => {} })).toThrow(/^not /);
    const report = reportOf(emptyReport);
    expect(readMessage(report, { report: () => {} })).toBe(report);
  });

  const state = { status: { workflows: [] }, gauges: {}, loops: [], longestTimeoutMs: 1, memoryMb: 1 };
  it.each([
    [null],
    [{}],
    [{ ...emptyReport, state: {} }],
    [{ ...emptyReport, state: { ...state, longestTimeoutMs: Number.NaN } }],
    [{ ...emptyReport, events: [['constructor', []]] }],
    [{ ...emptyReport, events: [['claimed', null]] }],
    [{ ...emptyReport, lines: [null] }],
    [{ ...emptyReport, events: new Array(2 ** 32 - 1) }],
    [{ ...emptyReport, lines: new Array(1001).fill('{}') }],
  ])('rejects the invalid report %#', (report) => {
    expect(() => readReport(report)).toThrow(/^not /);
    expect(readReport(emptyReport)).toBe(emptyReport);
    expect(readReport({ ...emptyReport, state })).toMatchObject({ state });
  });

  it('accepts at most 1,000 labels of metrics, each of at most 128 characters', () => {
    const known = new Set<string>();
    const claimed = (...names: string[]) =>
      checkLabels({ state: undefined, events: names.map((name) => ['claimed', [name, 1]]) }, known);
    claimed(...Array.from({ length: 1000 }, (_, i) => `w${i}`));
    claimed('w1', 'w1');
    expect(() => claimed('new')).toThrow('more than 1000 names');
    expect(() => claimed('x'.repeat(129))).toThrow('too long');
  });

  const open = (limits?: { messages: number; bytes: number }) => {
    const socket = new PassThrough();
    const heard: unknown[] = [];
    const errors: unknown[] = [];
    const handlers = { hear: (value: unknown) => void heard.push(value) };
    const onError = (error: unknown) => errors.push(error);
    const channel = new Channel(socket, {
      clock: systemClock,
      handlers,
      onError,
      ...(limits === undefined ? {} : { limits }),
    });
    return { socket, heard, errors, channel };
  };
  const hear = (value: unknown) => framed({ name: 'hear', args: [value] });

  it('messages arrive in order for any split of their bytes; invalid bytes are an error', async () => {
    const { socket, heard, errors, channel } = open();
    const messages = [new Map([['a', new Date(0)]]), undefined, 'x'.repeat(200_000)];
    for (const message of messages) await channel.notify('hear', message);
    for (const byte of hear('bytes')) socket.write(Buffer.from([byte]));
    await until(() => heard.length === 4, 'all have arrived');
    expect(heard).toEqual([...messages, 'bytes']);
    socket.write(Buffer.from([0, 0, 0, 0]));
    await until(() => errors.length === 1, 'an empty message is an error');
    socket.write(Buffer.from([255, 255, 255, 255]));
    await until(() => errors.length === 2, 'a length of 4 GB is an error');
    expect(String(errors[1])).toContain('a message of 4294967295 bytes is larger than');
    channel.close();
    await channel.closed;
    await channel.notify('hear', 'nothing happens');
  });

  it('a call is rejected without an answer in time, at the end of the channel, and after it', async () => {
    const unanswered = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
    const channel = new Channel(unanswered, { clock: systemClock, handlers: {}, onError: () => {} });
    await expect(channel.call('hear', [], 10)).rejects.toThrow('no answer within 0.01 s');
    const waiting = channel.call('hear', []);
    expect(channel.waiting).toBe(1);
    channel.close(new Error('the process ended'));
    await expect(waiting).rejects.toThrow('the process ended');
    await expect(channel.call('hear', [])).rejects.toThrow('the other process has ended');
    expect(channel.waiting).toBe(0);
  });

  it('a side that sends more messages than allowed is an error', async () => {
    const { socket, heard, errors, channel } = open({ messages: 1000, bytes: Infinity });
    const flood = Buffer.concat(Array.from({ length: 1000 }, () => hear('x')));
    socket.write(flood);
    await until(() => heard.length === 1000, 'all allowed messages arrive');
    channel.allowMore();
    socket.write(Buffer.concat([flood, hear('one too many')]));
    await until(() => errors.length > 0, 'the flood is an error');
    expect([heard.length, String(errors[0])]).toEqual([
      2000,
      'Error: it sent more than 1000 messages within a second',
    ]);
    channel.close();
  });

  it('one report is sent at a time, and what does not fit into the next one is counted', async () => {
    const sent: { events: number; lines: number; dropped: number }[] = [];
    let written = () => {};
    const reports = new ReportBuffer(({ events, lines, dropped }) => {
      sent.push({ events: events.length, lines: lines.length, dropped });
      return new Promise((resolve) => {
        written = resolve;
      });
    });
    const flushed = [reports.flush(), reports.flush()];
    await until(() => sent.length === 1, 'the first is sent');
    for (let i = 0; i < 25_000; i += 1) reports.addEvent('session', ['ok']);
    for (let i = 0; i < 1500; i += 1) reports.addLine('{}');
    expect(sent).toEqual([{ events: 0, lines: 0, dropped: 0 }]);
    written();
    await until(() => sent.length === 2, 'the second is sent');
    expect(sent[1]).toEqual({ events: 20_000, lines: 1000, dropped: 5500 });
    written();
    await Promise.all(flushed);
  });
});
