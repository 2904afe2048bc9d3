/** A new leader audits after its first sync, not one interval later. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Auditor } from '../../src/calls/audit/auditor.js';
import { SingleReplica } from '../../src/leadership/single-replica.js';
import { PoolManager } from '../../src/pool/manager.js';
import { describeOneEngine } from '../support/engines.js';
import { until } from '../support/until.js';
import { intervals, type Leader, openLeader, silentLog } from './fixture.js';

const intervalMs = 300_000;

describeOneEngine('the first audit of a leader', (engine) => {
  let leader: Leader;
  let manager: PoolManager;
  let counted: number[];
  let asked: number;
  let answered: number;
  /** Runs before an audit reads the store. */
  let beforeAudit: () => Promise<void>;
  beforeEach(async () => {
    leader = await openLeader(engine.url);
    leader.source.set('a', 'b');
    [counted, asked, answered, beforeAudit] = [[], 0, 0, () => Promise.resolve()];
    const { store, settings, source, clock } = leader;
    const auditor = new Auditor(store.connection);
    const { audit } = auditor;
    auditor.audit = async () => {
      asked += 1;
      await beforeAudit();
      const report = await audit.call(auditor);
      answered += 1;
      return report;
    };
    manager = new PoolManager({
      ...{ identity: 'this-one', source, settings, store: store.calls, pools: store.pools, clock },
      ...intervals,
      log: silentLog,
      leadership: (events) => new SingleReplica(events),
      ...{ auditor, auditIntervalMs: intervalMs },
      onAudited: (violations) => counted.push(violations),
    });
  });
  afterEach(async () => {
    await manager.stop();
    leader.store.close();
  });

  const loop = (name: string) => manager.loops.find((one) => one.name === name);

  it('reports existing violations at once, and continues at its interval', async () => {
    await engine.redis.set('voice:pod:calls:a', 'x');
    await manager.start();
    await until(() => counted.length === 1, 'it has audited');
    expect(counted).toEqual([1]);
    leader.clock.advance(intervalMs);
    await until(() => counted.length === 2, 'it has audited again');
    expect(counted).toEqual([1, 1]);
  });

  it('waits for the first sync, which may repair what it would find', async () => {
    let synced: number | undefined;
    beforeAudit = async () => {
      synced = loop('reconcile')?.rounds;
    };
    await manager.start();
    await until(() => counted.length === 1, 'it has audited');
    expect({ synced, counted }).toEqual({ synced: 1, counted: [0] });
  });

  it('comes although the cluster does not answer', async () => {
    leader.source.failure = new Error('the cluster does not answer');
    await manager.start();
    await until(() => counted.length === 1, 'it has audited');
  });

  it('is tried again when it fails', async () => {
    beforeAudit = () => Promise.reject(new Error('the store does not answer'));
    await manager.start();
    await until(() => loop('audit')?.crashes === 1, 'it has failed');
    beforeAudit = () => Promise.resolve();
    await until(() => {
      leader.clock.advance(1000);
      return counted.length > 0;
    }, 'it has audited');
    expect(loop('audit')).toMatchObject({ rounds: 1, crashes: 1 });
  });

  it('counts nothing when the term is over by then', async () => {
    let goOn = () => {};
    beforeAudit = () =>
      new Promise((resolve) => {
        goOn = resolve;
      });
    await manager.start();
    await until(() => asked === 1, 'it has asked');
    await manager.stop();
    goOn();
    await until(() => answered === 1, 'the audit under way is over');
    expect(counted).toEqual([]);
  });
});
