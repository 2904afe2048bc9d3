/** Follows the changes of the pods across ended watches. */
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { EpochRefused } from '../../src/calls/store/pool-store.js';
import { type ClusterPod, type PodChange, VersionExpired } from '../../src/cluster/pods.js';
import { AppError } from '../../src/errors.js';
import { SupervisedLoop } from '../../src/loop.js';
import { Watcher } from '../../src/pool/watcher.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { until } from '../support/until.js';
import { type Leader, openLeader, silentLog } from './fixture.js';

/** A scripted watch: changes, then its end, an error, or nothing until it is aborted. */
type Ending = Error | 'end' | 'open';

class Watches {
  /** The version from which each watch started. */
  readonly asked: string[] = [];
  readonly #scripts: { changes: PodChange[]; ending: Ending }[] = [];
  open = 0;

  next(ending: Ending, ...changes: PodChange[]): void {
    this.#scripts.push({ changes, ending });
  }

  async *watch(version: string, signal: AbortSignal): AsyncGenerator<PodChange> {
    this.asked.push(version);
    const { changes, ending } = this.#scripts.shift() ?? { changes: [], ending: 'open' as const };
    this.open += 1;
    try {
      yield* changes;
      if (ending === 'open') {
        await new Promise<void>((resolve) => {
          if (signal.aborted) resolve();
          signal.addEventListener('abort', () => resolve(), { once: true });
        });
        throw new Error('given up');
      }
      if (ending instanceof Error) throw ending;
    } finally {
      this.open -= 1;
    }
  }
}

const change = (version: string, name: string, extra: Partial<ClusterPod> = {}): PodChange => ({
  version,
  pod: { name, uid: name, state: 'ready', version, tier: 'basic', mustReport: false, ...extra },
});

describeEngines('the watcher', (engine) => {
  let leader: Leader;
  let watches: Watches;
  let watcher: Watcher;
  let stop: AbortController;
  let lists = 0;
  /** The result of a lookup of one pod. */
  const there = new Map<string, ClusterPod>();
  let readFails = false;
  let warnings: string[];
  let loop: SupervisedLoop | undefined;
  beforeEach(async () => {
    leader = await openLeader(engine.url);
    watches = new Watches();
    there.clear();
    readFails = false;
    warnings = [];
    stop = new AbortController();
    lists = 0;
    const { writer, clock } = leader;
    const log = pino(
      { level: 'warn' },
      { write: (line) => warnings.push((JSON.parse(line) as { msg: string }).msg) },
    );
    const source = {
      watch: watches.watch.bind(watches),
      read: async (name: string) => {
        if (readFails) throw new Error('500');
        return there.get(name);
      },
    };
    watcher = new Watcher({ source, clock, log }, writer, () => {
      lists += 1;
    });
  });
  afterEach(async () => {
    stop.abort();
    await loop?.stop();
    loop = undefined;
    expect(watches.open).toBe(0);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
    leader.store.close();
  });

  const known = async () => (await engine.redis.keys('voice:pod:tier:*')).map((key) => key.slice(15)).sort();
  /** One watch, and the pause after it. */
  const run = async (epoch = leader.store.epoch) => {
    const round = watcher.runOnce(epoch, stop.signal);
    let isOver = false;
    void round.then(
      () => (isOver = true),
      () => (isOver = true),
    );
    await until(() => isOver || leader.clock.sleepsMs.length > 0, 'the watch has ended');
    leader.clock.advance(1000);
    return round;
  };
  /** Rounds in sequence, as the leader runs them. */
  const follow = () => {
    const { clock, store } = leader;
    loop = new SupervisedLoop({
      name: 'watch',
      intervalMs: 0,
      clock,
      log: silentLog,
      runOnce: (signal, alive) => watcher.runOnce(store.epoch, signal, alive),
    });
    loop.start();
    return loop;
  };
  const asked = (count: number) => until(() => watches.asked.length === count, `watch ${count} is open`);

  it('waits for the first list, and starts from its version', async () => {
    watches.next('end', change('11', 'a'));
    const round = watcher.runOnce(leader.store.epoch, stop.signal);
    await Promise.resolve();
    expect(watches.asked).toEqual([]);
    watcher.listed('10');
    await until(() => leader.clock.sleepsMs.length > 0, 'the watch has ended');
    leader.clock.advance(1000);
    expect(await round).toEqual({ changes: 1 });
    expect(watches.asked).toEqual(['10']);
    expect(await known()).toEqual(['a']);
  });

  it('resumes from the last version it has seen, bookmarks included', async () => {
    watcher.listed('10');
    watches.next('end', change('11', 'a'), { version: '15' });
    watches.next('end', change('16', 'b'));
    watches.next('end');
    for (let i = 0; i < 3; i += 1) await run();
    expect(watches.asked).toEqual(['10', '15', '16']);
    expect(await known()).toEqual(['a', 'b']);
  });

  it('a bookmark is a known version: an older list is behind it', async () => {
    watcher.listed('10');
    watches.next('end', change('11', 'a'), { version: '15' });
    await run();
    expect(leader.writer.isBehind('14', leader.writer.newest)).toBe(true);
    expect(leader.writer.isBehind('15', leader.writer.newest)).toBe(false);
  });

  it('a list does not throw a watch back that is ahead of it', async () => {
    watcher.listed('10');
    watches.next('end', { version: '15' });
    watches.next('end');
    await run();
    watcher.listed('12');
    await run();
    expect(watches.asked).toEqual(['10', '15']);
  });

  it('a change whose write failed is repeated', async () => {
    watcher.listed('10');
    watches.next('end', change('11', 'a'), change('12', 'b'));
    const epoch = leader.store.epoch;
    await leader.store.pools.takeEpoch();
    await expect(run(epoch)).rejects.toThrow('newer leader');
    expect(await known()).toEqual([]);
    watches.next('end', change('11', 'a'), change('12', 'b'));
    await run(await leader.store.pools.takeEpoch());
    expect(watches.asked).toEqual(['10', '10']);
    expect(await known()).toEqual(['a', 'b']);
  });

  it('a version that is too old asks for a list, and resumes from the version of that list', async () => {
    watcher.listed('10');
    watches.next(new VersionExpired('too old'), change('11', 'a'));
    expect(await run()).toEqual({ changes: 1 });
    expect(lists).toBe(1);
    const next = watcher.runOnce(leader.store.epoch, stop.signal);
    await Promise.resolve();
    expect(watches.asked).toEqual(['10']);
    watcher.listed('50');
    await asked(2);
    expect(watches.asked).toEqual(['10', '50']);
    stop.abort();
    await next;
    expect(lists).toBe(1);
  });

  it('a list that starts the versions over ends the watch that waits for the old ones', async () => {
    watcher.listed('1000');
    const round = watcher.runOnce(leader.store.epoch, stop.signal);
    await asked(1);
    watcher.listed('50', true);
    await round;
    watches.next('end', change('51', 'a'));
    await run();
    expect(watches.asked).toEqual(['1000', '50']);
    expect(await known()).toEqual(['a']);
  });

  it('a server that ends every watch at once is asked once a second', async () => {
    watcher.listed('10');
    for (let i = 0; i < 20; i += 1) watches.next('end');
    follow();
    for (let second = 1; second <= 5; second += 1) {
      await asked(second);
      await until(() => leader.clock.sleepsMs.length > 0, 'it waits');
      expect(leader.clock.sleepsMs).toEqual([1000]);
      leader.clock.advance(1000);
    }
    await asked(6);
  });

  it('a watch that lasted longer is resumed without a pause', async () => {
    watcher.listed('10');
    const round = watcher.runOnce(leader.store.epoch, stop.signal);
    await asked(1);
    leader.clock.advance(60_000);
    watcher.listed('20', true);
    await round;
    expect(leader.clock.sleepsMs).toEqual([]);
  });

  it('a broken watch is an error of its loop, which backs off and resumes', async () => {
    watcher.listed('10');
    watches.next(new Error('socket hang up'), change('11', 'a'));
    watches.next(new Error('socket hang up'));
    watches.next('open', change('12', 'b'));
    const { clock } = leader;
    const { state } = follow();
    expect(state.crashes).toBe(0);
    for (const pauseMs of [1000, 2000]) {
      await until(() => clock.sleepsMs[0] === pauseMs, `it waits ${pauseMs} ms`);
      expect(loop?.state.last_error).toBe('socket hang up');
      clock.advance(pauseMs);
    }
    await until(async () => (await known()).length === 2, 'the changes are in the store');
    expect(watches.asked).toEqual(['10', '11', '11']);
    // The round has not ended, and has reported progress.
    await until(() => loop?.state.last_error === null, 'the loop is well');
    expect(loop?.state.counts).toEqual({ changes: 1 });
    expect(lists).toBe(0);
  });

  it.each([
    ['before the first list', false],
    ['while it is open', true],
  ])('an abort ends it %s, without an error', async (_, isListed) => {
    if (isListed) watcher.listed('10');
    const round = watcher.runOnce(leader.store.epoch, stop.signal);
    if (isListed) await asked(1);
    stop.abort();
    expect(await round).toEqual({ changes: 0 });
    expect(leader.clock.sleepsMs).toEqual([]);
  });

  it('a deleted pod is looked up: another of its name keeps its call', async () => {
    const { store } = leader;
    watches.next('end', change('11', 'a', { uid: 'old' }), change('12', 'b'));
    watcher.listed('10');
    await run();
    await store.allocate('given in the silence', ['pool:basic']);
    const { podName } = await store.calls.call('given in the silence');
    const other = podName === 'a' ? 'b' : 'a';
    const { pod: successor } = change('15', podName, { uid: 'new', startedAt: new Date(0).toISOString() });
    there.set(podName, successor as ClusterPod);
    watches.next(
      'end',
      change('13', podName, { uid: podName === 'a' ? 'old' : 'b', state: 'gone' }),
      change('14', podName, { uid: 'new', state: 'not_ready' }),
      change('15', podName, { uid: 'new', startedAt: new Date(0).toISOString() }),
      change('16', other, { uid: other === 'a' ? 'old' : 'b', state: 'gone' }),
    );
    await run();
    expect(leader.lost).toEqual([]);
    expect(await store.calls.call('given in the silence')).toMatchObject({ podName });
    expect(await engine.redis.hget(`voice:pod:${podName}`, 'uid')).toBe('new');
    expect(await known()).toEqual([podName]);
  });

  it('a list decides when the lookup fails, and other changes do not wait', async () => {
    watches.next('end', change('11', 'a'));
    watcher.listed('10');
    await run();
    readFails = true;
    watches.next('end', change('12', 'a', { state: 'gone' }), change('13', 'b'));
    await run();
    expect(await known()).toEqual(['a', 'b']);
    expect(lists).toBe(1);
  });

  it('a refused epoch in the write of a deletion ends the round, and is not a failed lookup', async () => {
    const { store } = leader;
    watches.next('end', change('11', 'a'));
    watcher.listed('10');
    await run();
    await store.pools.takeEpoch();
    watches.next('open', change('12', 'a', { state: 'gone' }));
    await expect(run()).rejects.toBeInstanceOf(EpochRefused);
    expect(warnings).toEqual([]);
    expect(await known()).toEqual(['a']);
    // The version has moved on: a list repeats the failed write.
    expect(lists).toBe(1);
  });

  it('a store error in the write of a deletion is an error of the round', async () => {
    watches.next('end', change('11', 'a'));
    watcher.listed('10');
    await run();
    const down = new AppError('store_unavailable', 'the store does not answer');
    vi.spyOn(leader.store.pools, 'remove').mockRejectedValueOnce(down);
    watches.next('open', change('12', 'a', { state: 'gone' }));
    await expect(run()).rejects.toThrow('the store does not answer');
    expect(warnings).toEqual([]);
    expect(lists).toBe(1);
  });

  it('a failed lookup is logged as one', async () => {
    readFails = true;
    watches.next('end', change('11', 'a', { state: 'gone' }));
    watcher.listed('10');
    await run();
    expect(warnings).toEqual(['pod deleted; replacement lookup failed']);
    expect(lists).toBe(1);
  });

  it('nothing that comes after an abort is written', async () => {
    watcher.listed('10');
    watches.next('end', change('11', 'a'), change('12', 'b'));
    stop.abort();
    await watcher.runOnce(leader.store.epoch, stop.signal);
    expect(await known()).toEqual([]);
  });
});
