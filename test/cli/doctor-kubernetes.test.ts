/** What doctor says of the Kubernetes API, against the simulated one. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkKubernetes } from '../../src/cli/doctor/kubernetes.js';
import { type Clock, systemClock } from '../../src/clock.js';
import { connectKubernetes } from '../../src/cluster/kubernetes/api.js';
import { loadConfig } from '../../src/config/config.js';
import { KubernetesLock } from '../../src/leadership/kubernetes-lock.js';
import { type Cluster, type ClusterOptions, startCluster } from '../support/cluster.js';
import { ManualClock } from '../support/manual-clock.js';
import { until } from '../support/until.js';
import { startScripted } from './support.js';

let folder: string;
let cluster: Cluster | undefined;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'doctor-'));
});
afterEach(async () => {
  await cluster?.stop();
  cluster = undefined;
  rmSync(folder, { recursive: true, force: true });
});

const everything = [
  { apiGroups: [''], resources: ['pods'], verbs: ['get', 'list', 'watch'] },
  { apiGroups: ['coordination.k8s.io'], resources: ['leases'], verbs: ['get', 'create', 'update'] },
];

const named = (name: string, verbs: string[]) => ({ ...everything[1], resourceNames: [name], verbs });

async function start(options: Partial<ClusterOptions> = {}): Promise<Cluster> {
  cluster = await startCluster({ clock: systemClock, rules: everything, ...options });
  return cluster;
}

/** Each check by its name, without the word that they all begin with. */
async function examine(kubeconfig: string, env: NodeJS.ProcessEnv = {}, timeoutMs = 5000, clock?: Clock) {
  const file = join(folder, 'config');
  writeFileSync(file, kubeconfig);
  return examineAt(file, env, timeoutMs, clock);
}

async function examineAt(
  file: string,
  env: NodeJS.ProcessEnv = {},
  timeoutMs = 5000,
  clock: Clock = systemClock,
) {
  const config = loadConfig({ KUBECONFIG: file, ...env }, 'serve');
  const checks = await checkKubernetes(config, clock, timeoutMs);
  return Object.fromEntries(
    checks.map(({ name, ...rest }) => [name.replace(/^kubernetes ?/, '') || 'server', rest]),
  );
}

describe('doctor with POD_SOURCE=kubernetes', () => {
  it('passes with exactly the permissions that the router needs', async () => {
    const { pods, kubeconfig, requests } = await start();
    for (const name of ['agent-0', 'agent-1']) pods.create({ name });
    pods.create({ name: 'agent-2', ready: false, annotations: { 'smart-router/report': 'required' } });
    pods.create({ name: 'database', labels: { app: 'database' } });
    const checks = await examine(kubeconfig);
    expect(Object.values(checks).map(({ status }) => status)).toEqual(Array(6).fill('ok'));
    expect(checks.server?.message).toMatch(/through KUBECONFIG, answers in \d+ ms: version v1\./);
    expect(checks.rights?.message).toBe('the Role allows everything that the router needs');
    expect(checks.pods?.message).toBe('3 pods with app=voice-agent in namespace default, 2 of them ready');
    expect(checks.reports?.message).toMatch(/^1 of 3 pods must report before/);
    expect(checks.lease?.message).toContain('default/smart-router-leader does not exist yet');
    expect(requests.used()).toEqual(['get leases', 'list pods', 'watch pods']);
  });

  it('warns if the selector matches no pods', async () => {
    const { pods, kubeconfig } = await start();
    pods.create({ name: 'agent-0' });
    const { pods: check } = await examine(kubeconfig, { POD_LABEL_SELECTOR: 'app=voice-agnet' });
    expect(check).toMatchObject({
      status: 'warn',
      message: 'the selector matches no pods: app=voice-agnet in namespace default',
      hint: expect.stringContaining('POD_LABEL_SELECTOR'),
    });
  });

  it('reports that no pod has to report', async () => {
    const { pods, kubeconfig } = await start();
    pods.create({ name: 'agent-0' });
    const { reports } = await examine(kubeconfig);
    expect(reports).toMatchObject({ status: 'ok', message: expect.stringContaining('no pod has') });
  });

  it('names the holder of the Lease, and skips the Lease if the election is off', async () => {
    const { kubeconfig } = await start();
    const file = join(folder, 'leader');
    writeFileSync(file, kubeconfig);
    const api = await connectKubernetes({ kubeconfig: file }, systemClock);
    const lock = new KubernetesLock({
      api,
      clock: systemClock,
      namespace: 'default',
      name: 'smart-router-leader',
    });
    const at = '2026-01-01T00:00:00.000Z';
    const held = { holder: 'router-7', writer: 'w', durationMs: 15_000, acquiredAt: at, renewedAt: at };
    await lock.write({ ...held, transitions: 0 }, undefined, 5000);
    api.close();
    expect((await examine(kubeconfig)).lease?.message).toMatch(/is held by router-7$/);
    const off = await examine(kubeconfig, { LEADER_ELECTION_ENABLED: 'false' });
    expect(off.lease).toMatchObject({ status: 'skip' });
  });

  it.each([
    ['pods', [{ ...everything[0], verbs: ['get', 'watch'] }, everything[1]], 'pods get, list, watch'],
    ['watch', [{ ...everything[0], verbs: ['get', 'list'] }, everything[1]], 'pods get, list, watch'],
    ['lease', [everything[0]], 'get, create, update'],
  ])('names the verbs of the Role when 403 is the answer to %s', async (name, rules, verbs) => {
    const { kubeconfig, pods } = await start({ rules: rules as ClusterOptions['rules'] & object });
    pods.create({ name: 'agent-0' });
    const checks = await examine(kubeconfig);
    const failed = Object.entries(checks).filter(([, { status }]) => status === 'fail');
    expect(failed.map(([failedName]) => failedName)).toEqual(['rights', name]);
    expect(checks[name]?.hint).toContain(verbs);
  });

  it.each([
    ['get pods', [{ ...everything[0], verbs: ['list', 'watch'] }, everything[1]]],
    ['create leases', [everything[0], { ...everything[1], verbs: ['get', 'update'] }]],
    ['update leases', [everything[0], { ...everything[1], verbs: ['get', 'create'] }]],
    [
      'update leases',
      [everything[0], { ...everything[1], verbs: ['get', 'create'] }, named('another', ['update'])],
    ],
  ])('finds that the Role does not allow %s, without trying it', async (missing, rules) => {
    const { kubeconfig, pods, requests } = await start({ rules: rules as ClusterOptions['rules'] & object });
    pods.create({ name: 'agent-0' });
    const checks = await examine(kubeconfig);
    const failed = Object.entries(checks).filter(([, { status }]) => status === 'fail');
    expect(failed.map(([failedName]) => failedName)).toEqual(['rights']);
    expect(checks.rights?.message).toBe(`the Role does not allow: ${missing} in namespace default`);
    expect(requests.used()).toEqual(['get leases', 'list pods', 'watch pods']);
  });

  it('accepts a Role for the one Lease, and skips the Lease if the election is off', async () => {
    const create = { ...everything[1], verbs: ['create'] };
    const rules = [everything[0], create, named('smart-router-leader', ['get', 'update'])];
    const { kubeconfig } = await start({ rules: rules as ClusterOptions['rules'] & object });
    expect((await examine(kubeconfig)).rights).toMatchObject({ status: 'ok' });
    await cluster?.stop();
    const other = await start({ rules: [everything[0]] as ClusterOptions['rules'] & object });
    const off = await examine(other.kubeconfig, { LEADER_ELECTION_ENABLED: 'false' });
    expect(off.rights).toMatchObject({ status: 'ok' });
  });

  it('says that the selector is invalid when the API server answers 400', async () => {
    const { kubeconfig } = await start();
    const { pods, watch } = await examine(kubeconfig, { POD_LABEL_SELECTOR: 'app=voice agent' });
    for (const check of [pods, watch]) {
      expect(check).toMatchObject({
        status: 'fail',
        message: expect.stringContaining('the label selector app=voice agent is invalid'),
        hint: expect.stringContaining('POD_LABEL_SELECTOR'),
      });
    }
  });

  it('fails with one line when the credentials are refused', async () => {
    const { kubeconfig } = await start({ token: 'the-right-one' });
    const checks = await examine(kubeconfig.replace('the-right-one', 'another'));
    expect(checks).toEqual({
      server: { status: 'fail', message: expect.stringContaining('401'), hint: expect.any(String) },
    });
  });

  it('fails with one line if the server or the kubeconfig does not exist', async () => {
    const { kubeconfig, down } = await start();
    await down();
    expect(await examine(kubeconfig)).toEqual({
      server: {
        status: 'fail',
        message: expect.stringMatching(/ECONNREFUSED 127\.0\.0\.1:\d+ .*looked for through KUBECONFIG$/),
        hint: expect.stringContaining('Set KUBECONFIG'),
      },
    });
    expect(await examineAt(join(folder, 'nowhere'))).toEqual({
      server: {
        status: 'fail',
        message: expect.stringContaining('KUBECONFIG cannot be used'),
        hint: expect.any(String),
      },
    });
  });

  it('ends in time if the API server does not answer', async () => {
    const { kubeconfig, faults, requests } = await start();
    faults.failRequests({ hang: true });
    // The version must come in time.
    const clock = new ManualClock();
    const examined = examine(kubeconfig, {}, 300, clock);
    await until(() => requests.used().length === 3, 'pods, watch and lease are requested');
    clock.advance(2000);
    const checks = await examined;
    expect([checks.pods?.status, checks.watch?.status, checks.lease?.status]).toEqual([
      'fail',
      'fail',
      'fail',
    ]);

    const silent = await startScripted(() => undefined);
    try {
      const gone = await examine(kubeconfig.replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, silent.url), {}, 300);
      expect(gone).toEqual({
        server: {
          status: 'fail',
          message: expect.stringContaining('no response from the Kubernetes API for 300 ms'),
          hint: expect.any(String),
        },
      });
    } finally {
      await silent.stop();
    }
  });
});
