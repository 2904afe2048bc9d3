/** The replicas in the chart with an autoscaler: what helm reads from the cluster, and the number that it renders. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { findProgram } from '../../scripts/setup-helm.mjs';
import { chart, describeWith, only, parse, render } from './manifests.js';
import { startShipped } from './shipped-program.js';

const deploymentPath = '/apis/apps/v1/namespaces/voice/deployments/calls-smart-router';
const names = (apiVersion: string) => ({ groupVersion: apiVersion, version: apiVersion.split('/').at(-1) });

/** The part of an API server that `helm template --dry-run=server` uses: discovery, and one Deployment. */
async function startApi(replicas: number | undefined): Promise<string> {
  const kinds = new Map<string, Set<string>>();
  for (const { apiVersion, kind } of render('everything'))
    kinds.set(apiVersion, (kinds.get(apiVersion) ?? new Set()).add(kind));
  const groups = [...kinds.keys()].filter((apiVersion) => apiVersion.includes('/'));
  const answers = new Map<string, object>([
    ['/version', { major: '1', minor: '34', gitVersion: 'v1.34.0' }],
    ['/api', { kind: 'APIVersions', versions: ['v1'] }],
    [
      '/apis',
      {
        kind: 'APIGroupList',
        groups: groups.map((one) => ({
          name: one.split('/')[0],
          versions: [names(one)],
          preferredVersion: names(one),
        })),
      },
    ],
    ...[...kinds].map(([groupVersion, ofGroup]): [string, object] => [
      groupVersion === 'v1' ? '/api/v1' : `/apis/${groupVersion}`,
      {
        kind: 'APIResourceList',
        groupVersion,
        resources: [...ofGroup].map((kind) => {
          const name = `${kind.toLowerCase()}s`;
          return { name, singularName: kind.toLowerCase(), namespaced: true, kind, verbs: ['get'] };
        }),
      },
    ]),
  ]);
  if (replicas !== undefined)
    answers.set(deploymentPath, {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: {
        name: 'calls-smart-router',
        namespace: 'voice',
        labels: { 'app.kubernetes.io/managed-by': 'Helm' },
        annotations: { 'meta.helm.sh/release-name': 'calls', 'meta.helm.sh/release-namespace': 'voice' },
      },
      spec: { replicas },
    });
  const server = createServer(({ url = '' }, response) => {
    const answer = answers.get(url.split('?')[0] ?? '');
    const missing = { kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'NotFound', code: 404 };
    response.writeHead(answer ? 200 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(answer ?? missing));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function replicasWith(running: number | undefined): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-helm-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const kubeconfig = join(folder, 'kubeconfig');
  const named = (name: string, more: object) => [{ name, ...more }];
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: named('c', { cluster: { server: await startApi(running) } }),
      users: named('u', { user: { token: 't' } }),
      contexts: named('x', { context: { cluster: 'c', user: 'u' } }),
      'current-context': 'x',
    }),
  );
  const values = `${chart}/ci/everything-values.yaml`;
  const helm = startShipped(
    findProgram('helm') ?? 'helm',
    [
      ...['template', 'calls', chart, '--namespace', 'voice', '--values', values, '--kubeconfig', kubeconfig],
      ...['--dry-run=server', '--disable-openapi-validation'],
    ],
    { PATH: process.env.PATH, HOME: folder },
  );
  onTestFinished(helm.end);
  const code = await helm.ended;
  if (code !== 0) throw new Error(helm.output);
  return only(parse(helm.output), 'Deployment').spec.replicas;
}

describeWith('helm', 'a Deployment with an autoscaler', () => {
  // In the tests: a suite that is skipped is declared, too.
  const limits = (): { minReplicas: number; maxReplicas: number } =>
    only(render('everything'), 'HorizontalPodAutoscaler').spec;

  it.each<[string, (min: number, max: number) => [running: number | undefined, replicas: number]]>([
    ['keeps the number that the autoscaler has set', (min) => [min + 1, min + 1]],
    ['starts with its minimum when it is new', (min) => [undefined, min]],
    ['has no fewer than the minimum', (min) => [1, min]],
    ['has no more than the maximum', (_, max) => [max + 5, max]],
  ])('%s', async (_, expected) => {
    const { minReplicas, maxReplicas } = limits();
    const [running, replicas] = expected(minReplicas, maxReplicas);
    expect(await replicasWith(running)).toBe(replicas);
  });

  it('renders minReplicas without a cluster', () => {
    const { minReplicas } = limits();
    expect(only(render('everything'), 'Deployment').spec.replicas).toBe(minReplicas);
  });
});
