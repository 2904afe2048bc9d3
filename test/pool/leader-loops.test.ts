/** One term of a leader: its epoch, what it does when the store refuses it, and its end. Guarantee 9. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { LeaderLoops } from '../../src/pool/leader-loops.js';
import { type Kubernetes, kubernetes } from '../cluster/fixture.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { ManualClock } from '../support/manual-clock.js';
import { openStore, type TestStore, testTiers } from '../support/store.js';
import { until } from '../support/until.js';
import { openLeader, Pods, silentLog } from './fixture.js';
import { type Reign, type ReignOptions, reign, sourceOf } from './leader-fixture.js';

describeEngines('a term', (engine) => {
  let k8s: Kubernetes;
  let store: TestStore;
  let source: Pods;
  const reigns: Reign[] = [];
  beforeEach(async () => {
    k8s = kubernetes();
    store = await openStore(engine.url);
    source = new Pods();
    source.set('a', 'b');
  });
  afterEach(async () => {
    for (const one of reigns.splice(0)) await one.stop();
    expect(await checkInvariants(engine.redis)).toEqual([]);
    store.close();
    await k8s.stop();
  });

  const lead = async (options: Partial<ReignOptions> = {}) => {
    const leader = await reign({ store, tiers: testTiers, source, ...options });
    reigns.push(leader);
    return leader;
  };
  const epoch = async () => Number(await engine.redis.get('voice:leader:epoch'));
  const known = async () => (await engine.redis.keys('voice:pod:tier:*')).map((key) => key.slice(15)).sort();
  const warnings = ({ log }: Reign) => log.filter(({ level }) => level === 40).map(({ msg }) => msg);
  const rounds = ({ manager }: Reign, name: string) =>
    manager.loops.find((loop) => loop.name === name)?.rounds ?? 0;
  const crashes = ({ manager }: Reign) => manager.loops.reduce((sum, loop) => sum + loop.crashes, 0);
  /** Another replica takes an epoch, as a mistaken leader or after a failover of the store. */
  const takeOther = async () => Number(await store.pools.takeEpoch('other'));

  it('says in the event stream who leads', async () => {
    await lead();
    const events = await engine.redis.xrange('voice:events', '-', '+');
    const fields = events.map(([, flat]) => flat.join(' '));
    expect(fields).toContain(`type leader_elected leader this-one epoch ${await epoch()}`);
  });

  it('a refused leader that still holds the lock takes a newer epoch and continues', async () => {
    const leader = await lead({ cleanupIntervalMs: 10 });
    const other = await takeOther();
    source.set('a', 'c');
    await until(async () => (await epoch()) > other, 'it has a newer epoch');
    // It looks at once: the other one may have written anything.
    await until(async () => (await known()).join() === 'a,c', 'it has synced');
    const swept = rounds(leader, 'sweep');
    await until(() => rounds(leader, 'sweep') > swept, 'it sweeps on');
    expect(leader.manager.isLeader).toBe(true);
    expect(warnings(leader)).toEqual(['epoch refused but lock still held; taking a new epoch']);
    expect(crashes(leader)).toBe(0);
  });

  it('a refused leader that does not hold the lock any more ends its term', async () => {
    const leader = await lead({ cleanupIntervalMs: 10 });
    leader.throne.stillHeld = () => Promise.resolve(false);
    const other = await takeOther();
    source.set();
    await until(() => !leader.manager.isLeader, 'its term is over');
    expect(leader.manager.loops).toEqual([]);
    expect(await epoch()).toBe(other);
    expect(await known()).toEqual(['a', 'b']);
    expect(warnings(leader)).toEqual(['epoch refused: another replica is the leader; ending this term']);
  });

  it('a refused leader takes no new epoch before it has read the lock', async () => {
    const leader = await lead({ cleanupIntervalMs: 5, reconcileIntervalMs: 5 });
    let asked = 0;
    let answer = (_: boolean) => {};
    let refusals = 0;
    const { connection } = store;
    const run = connection.run.bind(connection);
    connection.run = async (...args) => {
      const reply = await run(...args);
      if (Array.isArray(reply) && reply[0] === 'stale_epoch') refusals += 1;
      return reply;
    };
    leader.throne.stillHeld = () => {
      asked += 1;
      return new Promise((resolve) => {
        answer = resolve;
      });
    };
    const other = await takeOther();
    await until(() => asked === 1, 'the lock is asked');
    // The other loop meets the refusal too, and waits for the same answer.
    await until(() => refusals >= 2, 'both loops are refused');
    expect(await epoch()).toBe(other);
    answer(true);
    await until(async () => (await epoch()) > other, 'it has a newer epoch');
    await leader.sync();
    expect(asked).toBe(1);
    expect(warnings(leader)).toHaveLength(1);
  });

  it('a refused leader whose lock cannot be read takes no new epoch, and asks again', async () => {
    const leader = await lead({ cleanupIntervalMs: 5, reconcileIntervalMs: 5 });
    let asked = 0;
    leader.throne.stillHeld = () => {
      asked += 1;
      return Promise.reject(new Error('the lock does not answer'));
    };
    const other = await takeOther();
    await until(() => asked >= 3, 'it has asked again');
    expect(await epoch()).toBe(other);
    expect(leader.manager.isLeader).toBe(true);
    leader.throne.stillHeld = () => Promise.resolve(true);
    await until(async () => (await epoch()) > other, 'it has a newer epoch');
    await leader.sync();
  });

  it('a change that the store refused is repeated with the new epoch', async () => {
    const cluster = await k8s.cluster();
    const leader = await lead({ source: await sourceOf(k8s, cluster.kubeconfig) });
    await until(() => cluster.openWatches === 1, 'the watch is open');
    await takeOther();
    // No sync: it would bring the pod as well.
    const lists = cluster.faults.failRequests({ verb: 'list', status: 500 });
    cluster.pods.create({ name: 'c' });
    await until(async () => (await known()).join() === 'c', 'the change is in the store');
    expect(warnings(leader)).toHaveLength(1);
    lists();
  });

  it('a term that is over before it begins takes no epoch', async () => {
    const { settings, store: other } = await openLeader(engine.url);
    const before = await epoch();
    const options = { settings, store: store.calls, pools: store.pools, source, log: silentLog };
    const clock = new ManualClock();
    const intervals = { reconcileIntervalMs: 1000, cleanupIntervalMs: 1000 };
    const term = new LeaderLoops({ identity: 'late', clock, ...options, ...intervals }, () =>
      Promise.resolve(true),
    );
    await term.run(AbortSignal.abort());
    await store.calls.snapshot();
    expect(await epoch()).toBe(before);
    expect(clock.sleepsMs).toEqual([]);
    other.close();
  });

  it('ends at once although the API server does not answer', async () => {
    const cluster = await k8s.cluster();
    cluster.pods.create({ name: 'a' });
    const leader = await lead({ source: await sourceOf(k8s, cluster.kubeconfig) });
    cluster.faults.failRequests({ verb: 'list', hang: true });
    const asked = cluster.requests.count({ verb: 'list' });
    leader.manager.nudge();
    await until(() => cluster.requests.count({ verb: 'list' }) > asked, 'the list hangs');
    await leader.stop();
    expect(leader.manager.isLeader).toBe(false);
    await until(() => cluster.openWatches === 0, 'its watch is closed');
    expect(await known()).toEqual(['a']);
  });
});
