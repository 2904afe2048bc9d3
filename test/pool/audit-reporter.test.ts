/** The leader's audit as a loop: what it counts, what it logs, and that a term which is over does not wait for it. */
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Auditor } from '../../src/calls/audit/auditor.js';
import { reportAudit } from '../../src/pool/audit-reporter.js';
import { connectWithTimeout } from '../calls/short-timeout.js';
import { describeOneEngine } from '../support/engines.js';
import { openStore, type TestStore } from '../support/store.js';

const never = new AbortController().signal;

describeOneEngine('the audit of a leader', (engine) => {
  let store: TestStore;
  let log: { level: number; msg: string; pod?: string; violations?: number }[];
  let counted: number[];
  beforeEach(async () => {
    [log, counted] = [[], []];
    store = await openStore(engine.url);
    await store.register(['a', 'b'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
  });
  afterEach(async () => {
    await engine.resume();
    store.close();
  });
  const onAudited = (violations: number) => void counted.push(violations);
  const audit = (signal = never) => {
    const write = (line: string) => void log.push(JSON.parse(line));
    const logger = pino({ level: 'debug', base: null }, { write });
    return reportAudit(new Auditor(store.connection), { log: logger, onAudited }, signal);
  };

  it('logs nothing for a healthy store, and counts pods and calls', async () => {
    expect(await audit()).toEqual({ pods: 2, calls: 1, violations: 0, pending: 0 });
    expect(counted).toEqual([0]);
    expect(log).toEqual([]);
  });

  it('does not alarm about what the sweep will repair', async () => {
    await engine.redis.del('voice:pool:gold:available');
    expect(await audit()).toMatchObject({ violations: 0, pending: 1 });
    expect(counted).toEqual([0]);
    expect(log).toEqual([]);
  });

  it('logs ten violations with their pods, and says that there are more', async () => {
    const ghosts = Array.from({ length: 25 }, (_, i) => `ghost-${i}`);
    await engine.redis.sadd('voice:pool:gold:assigned', ...ghosts);
    expect(await audit()).toMatchObject({ violations: 25 });
    expect(counted).toEqual([25]);
    expect(log).toHaveLength(11);
    expect(log.every(({ level }) => level === 50)).toBe(true);
    expect(log[0]).toMatchObject({
      msg: expect.stringMatching(
        /^invariant violated: pool:gold has the unregistered pod ghost-\d+ assigned/,
      ),
      pod: expect.stringMatching(/^ghost-/),
    });
    expect(log[10]).toMatchObject({ violations: 25 });
  });

  it('a term that is over does not wait for the store, and counts nothing', async () => {
    await engine.pause();
    const over = new AbortController();
    const round = audit(over.signal);
    over.abort();
    expect(await round).toEqual({});
    expect(counted).toEqual([]);
  });

  it('a store that does not answer ends the round with an error, and the last count stays', async () => {
    const hasty = await connectWithTimeout(engine.url, 200);
    await engine.pause();
    const silent = { log: pino({ level: 'silent' }), onAudited };
    const round = reportAudit(new Auditor(hasty), silent, never);
    await expect(round).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(counted).toEqual([]);
    await engine.resume();
  });
});
