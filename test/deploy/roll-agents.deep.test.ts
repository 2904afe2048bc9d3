/**
 * The shipped script that rolls agents, with a real kubectl, against the simulated cluster.
 *
 * The simulated controller does not support OnDelete. With an hour of `minReadyMs` it replaces the topmost pod itself, before it
 * says that it has seen the change, and waits for that one from then on: everything else is the script's work.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { findProgram } from '../../scripts/setup-helm.mjs';
import { systemClock } from '../../src/clock.js';
import type { Pod } from '../../src/cluster/simulator/objects.js';
import { statefulSets } from '../../src/cluster/simulator/resources.js';
import { StatefulSet, type StatefulSetOptions } from '../../src/cluster/simulator/stateful-set.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { until } from '../support/until.js';
import { describeWith, root } from './manifests.js';
import { startShipped } from './shipped-program.js';

const script = `${root}deploy/examples/roll-agents.sh`;
const kubectl = findProgram('kubectl') ?? '';
const isReady = ({ metadata, status }: Pod) =>
  metadata.deletionTimestamp === undefined &&
  (status.conditions ?? []).some(({ type, status: is }) => type === 'Ready' && is === 'True');

it('prints its help, and refuses invalid arguments without a request to the cluster', () => {
  const said = (...args: string[]) => {
    const { status, stdout, stderr } = spawnSync('sh', [script, ...args], { encoding: 'utf8' });
    return { status, text: stdout + stderr };
  };
  expect(said('--help')).toEqual({ status: 0, text: expect.stringContaining('--wave N') });
  expect(said('voice-agent')).toEqual({ status: 1, text: expect.stringContaining('--wave must be') });
  expect(said('--wave', '0', 'voice-agent').status).toBe(1);
  expect(said('--wave', '1e3', 'voice-agent').status).toBe(1);
  expect(said('--wave', '5').text).toContain('the name of a StatefulSet is missing');
  expect(said('--wave', '5', 'gold', 'basic').text).toContain('only one StatefulSet is allowed');
  expect(said('--wave').text).toContain('--wave needs a value');
});

describeWith('kubectl', 'roll-agents.sh', () => {
  let cluster: Cluster;
  let folder: string;
  const endings: (() => unknown)[] = [];

  beforeEach(async () => {
    // Without a token: kubectl sends none over plain HTTP.
    cluster = await startCluster({ clock: systemClock, namespace: 'voice' });
    folder = mkdtempSync(join(tmpdir(), 'smart-router-roll-'));
    writeFileSync(join(folder, 'kubeconfig'), cluster.kubeconfig);
    endings.push(
      () => cluster.stop(),
      () => rmSync(folder, { recursive: true, force: true }),
    );
  });
  afterEach(async () => {
    for (const end of endings.splice(0).reverse()) await end();
  });

  async function startSet(
    name: string,
    replicas: number,
    more: Partial<StatefulSetOptions> = {},
  ): Promise<StatefulSet> {
    const set = new StatefulSet(cluster, {
      name,
      replicas,
      labels: { app: 'voice-agent' },
      podManagementPolicy: 'Parallel',
      minReadyMs: 3_600_000,
      readyAfterMs: 100,
      graceMs: 60_000,
      ...more,
    });
    endings.push(() => set.stop());
    await until(() => set.status().ready === replicas, `all of ${name} are ready`);
    return set;
  }

  const podsOf = (set: StatefulSet) =>
    cluster.pods
      .list()
      .filter(({ metadata }) => metadata.ownerReferences?.some(({ name }) => name === set.name));
  const uidsOf = (set: StatefulSet) => podsOf(set).map(({ metadata }) => metadata.uid);
  /** How many pods of a set do not serve, at worst, from now on. */
  function mostAway(set: StatefulSet): () => number {
    let most = 0;
    endings.push(
      cluster.internals.store.onChange(() => {
        most = Math.max(most, set.status().desired - podsOf(set).filter(isReady).length);
      }),
    );
    return () => most;
  }
  const deletions = () =>
    cluster.requests
      .list({ verb: 'delete', resource: 'pods' })
      .map(({ path }) => path.split('/').at(-1) ?? '');

  function roll(...args: string[]) {
    const rolling = startShipped('sh', [script, '--interval', '1', ...args], {
      PATH: [folder, dirname(kubectl), process.env.PATH].join(delimiter),
      HOME: folder,
      KUBECONFIG: join(folder, 'kubeconfig'),
    });
    endings.push(rolling.end);
    return rolling;
  }

  it('replaces all pods of this set, never more than a wave at a time, and no pod of another tier', async () => {
    const gold = await startSet('voice-agent', 8, {
      // Each has a call that takes a while to end: longer than the deletions of a wave.
      hooks: { preStop: () => new Promise((resolve) => systemClock.after(3000, resolve)) },
    });
    const basic = await startSet('voice-agent-basic', 4);
    const [oldGold, oldBasic] = [uidsOf(gold), uidsOf(basic)];
    const away = mostAway(gold);
    gold.roll({ version: '2' });
    const rolling = roll('--wave', '3', '-n', 'voice', 'voice-agent');
    expect({ code: await rolling.ended, output: rolling.output }).toMatchObject({ code: 0 });
    expect(away()).toBe(3);
    expect(gold.status()).toMatchObject({ replicas: 8, ready: 8, updated: 8 });
    expect(uidsOf(gold).filter((uid) => oldGold.includes(uid))).toEqual([]);
    expect(uidsOf(basic)).toEqual(oldBasic);
    expect(rolling.output).toMatch(
      /^voice-agent: \d of 8 pods new and ready, \d unavailable, \d to replace$/m,
    );
    expect(rolling.output).toMatch(/all pods of voice-agent have revision voice-agent-\w+\n$/);
  }, 120_000);

  it('stops after one wave if the new version does not become ready', async () => {
    let isBroken = false;
    const set = await startSet('voice-agent', 6, {
      hooks: { onStart: () => (isBroken ? Promise.reject(new Error('it does not start')) : undefined) },
    });
    isBroken = true;
    set.roll({ version: 'broken' });
    const rolling = roll('--wave', '2', 'voice-agent');
    await until(
      () => rolling.output.includes('0 of 6 pods new and ready, 2 unavailable, 4 to replace'),
      'a wave',
    );
    const lists = () => cluster.requests.count({ verb: 'list', resource: 'pods' });
    const before = lists();
    await until(() => lists() >= before + 2, 'two more lists');
    expect(rolling.running).toBe(true);
    expect(podsOf(set).filter(isReady)).toHaveLength(4);
    // The version that repairs it: pods that do not serve anyway go first, though the wave is full.
    isBroken = false;
    set.roll({ version: '3' });
    expect({ code: await rolling.ended, output: rolling.output }).toMatchObject({ code: 0 });
    expect(set.status()).toMatchObject({ ready: 6, updated: 6 });
  }, 60_000);

  it('deletes nothing before the controller has seen the change', async () => {
    const set = await startSet('voice-agent', 3);
    set.stop();
    const before = cluster.internals.registry.get(statefulSets, 'voice', 'voice-agent');
    set.roll({ version: '2' });
    const rolling = roll('--wave', '1', 'voice-agent');
    await until(() => rolling.output.includes('waiting for the controller'), 'it waits');
    expect(rolling.running).toBe(true);
    // It has seen it, and found that the template is the one the pods have.
    const { metadata } = JSON.parse(
      cluster.internals.registry.get(statefulSets, 'voice', 'voice-agent').json,
    );
    expect(metadata.generation).toBeGreaterThan(JSON.parse(before.json).metadata.generation);
    const status = { observedGeneration: metadata.generation };
    cluster.internals.registry.patch(statefulSets, 'voice', 'voice-agent', { status });
    expect(await rolling.ended).toBe(0);
    expect(deletions()).toEqual([]);
  }, 30_000);

  it('replaces pods without a call first, as the router names them', async () => {
    const set = await startSet('voice-agent', 5);
    // The simulator runs nothing in its pods: only `exec` is answered here, the rest is the real kubectl.
    const answer = '{ "pods": [\n{ "pod_name": "voice-agent-2",\n "state": "free" } ] }';
    const router = 'exec deployment/smart-router -- smart-router pods --state free --json';
    writeFileSync(
      join(folder, 'kubectl'),
      `#!/bin/sh\nif [ "$*" = "--namespace voice ${router}" ]; then echo '${answer}'; exit; fi\nexec ${kubectl} "$@"\n`,
    );
    chmodSync(join(folder, 'kubectl'), 0o755);
    set.roll({ version: '2' });
    const args = ['--wave', '2', '--namespace', 'voice', '--router', 'deployment/smart-router'];
    const rolling = roll(...args, 'statefulset/voice-agent');
    expect({ code: await rolling.ended, output: rolling.output }).toMatchObject({ code: 0 });
    expect(deletions()[0]).toBe('voice-agent-2');
    expect(deletions().sort()).toEqual(['voice-agent-0', 'voice-agent-1', 'voice-agent-2', 'voice-agent-3']);
  }, 60_000);

  it('fails at once for a StatefulSet that does not exist', async () => {
    const rolling = roll('--wave', '2', 'stranger');
    expect(await rolling.ended).toBe(1);
    expect(rolling.output).toContain('stranger');
  }, 30_000);
});
