/** The manifests beside the chart: agents, their autoscaler, the proxy. */
import { readdirSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { agentTable, loadAgentConfig } from '../../src/config/agent.js';
import {
  chart,
  describeWith,
  type EnvEntry,
  type Manifest,
  only,
  parse,
  parseTyped,
  readText,
  render,
  root,
  run,
  selects,
} from './manifests.js';

const folders = ['deploy/examples', 'deploy/nginx'];
const containerOf = ({ spec }: Manifest) => spec.template.spec.containers[0];
const envOf = (workload: Manifest, name: string) =>
  containerOf(workload).env.find((entry: EnvEntry) => entry.name === name)?.value;

describeWith('kubectl', 'kustomize', () => {
  it('the Deployment has only fields of the Kubernetes API', () => {
    const text = readText('deploy/examples/voice-agent-deployment.yaml');
    expect(parseTyped(text)).toEqual(parse(text));
  });

  it.each(folders)('%s renders with fields of the Kubernetes API only', (folder) => {
    const { code, stdout, stderr } = run('kubectl', 'kustomize', root + folder);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const written = parse(stdout);
    expect(written.length).toBeGreaterThan(3);
    expect(parseTyped(stdout)).toEqual(written);
  });

  it('the ConfigMap drain-and-wait has both hooks, unchanged, under a fixed name', () => {
    const { data } = only(
      parse(run('kubectl', 'kustomize', `${root}deploy/examples`).stdout),
      'ConfigMap',
      'drain-and-wait',
    );
    expect(data).toEqual({
      'drain-and-wait.mjs': readText('deploy/examples/drain-and-wait.mjs'),
      'drain-and-wait.sh': readText('deploy/examples/drain-and-wait.sh'),
    });
  });

  it('a new configuration of the proxy restarts its pods', () => {
    const manifests = parse(run('kubectl', 'kustomize', `${root}deploy/nginx`).stdout);
    const config = only(manifests, 'ConfigMap');
    expect(config.data['nginx.conf.template']).toBe(readText('deploy/nginx/nginx.conf'));
    expect(config.metadata.name).toMatch(/^voice-proxy-\w+$/);
    const { volumes } = only(manifests, 'Deployment').spec.template.spec;
    expect(volumes[0].configMap.name).toBe(config.metadata.name);
  });
});

const sidecarOf = ({ spec }: Manifest) => spec.template.spec.initContainers[0];
const agentsAs = (kind: 'StatefulSet' | 'Deployment') =>
  parse(readText(`deploy/examples/voice-agent-${kind.toLowerCase()}.yaml`));

describe.each(['StatefulSet', 'Deployment'] as const)('the voice agents as a %s', (kind) => {
  const manifests = agentsAs(kind);
  const agents = only(manifests, kind);
  const pod = agents.spec.template;
  const sidecar = sidecarOf(agents);

  it('wait for their calls before they stop, with a long enough grace period', () => {
    const [program, seconds, ...command] = containerOf(agents).lifecycle.preStop.exec.command;
    const port = agentTable.find(({ name }) => name === 'AGENT_PORT')?.fallback;
    expect([program, ...command]).toEqual([
      'timeout',
      'sh',
      '-c',
      `until curl -fsS -X POST http://127.0.0.1:${port}/drain; do sleep 1; done`,
    ]);
    expect(pod.spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(Number(seconds) + 30);
    expect(readText('docs/agents.md')).toContain(
      `command: [timeout, "${seconds}", sh, -c, "${command.at(-1)}"]`,
    );
  });

  it('have a native sidecar with a valid environment and without probes, which could not reach it', () => {
    expect(sidecar).toMatchObject({ args: ['agent'], restartPolicy: 'Always' });
    const { version } = JSON.parse(readText('package.json'));
    expect(sidecar.image).toBe(`registry.example.com/voice/smart-router:${version}`);
    const env: EnvEntry[] = sidecar.env;
    const known = agentTable.map(({ name }) => name);
    expect(env.filter(({ name }) => !known.includes(name))).toEqual([]);
    const variables = Object.fromEntries(env.map(({ name, value = 'from-the-pod' }) => [name, value]));
    expect(loadAgentConfig(variables)).toMatchObject({ podName: 'from-the-pod', agentPort: 9357 });
    const { readinessProbe, ports } = containerOf(agents);
    const { port } = new URL(variables.AGENT_HEALTH_URL ?? '');
    expect(variables.AGENT_HEALTH_URL).toBe(`http://127.0.0.1:${port}${readinessProbe.httpGet.path}`);
    expect(ports).toEqual([{ name: readinessProbe.httpGet.port, containerPort: Number(port) }]);
    expect(Object.keys(sidecar).filter((key) => /probe/i.test(key))).toEqual([]);
    expect(Number.parseInt(sidecar.resources.requests.memory, 10)).toBeGreaterThan(60);
  });

  it('have the API key from a Secret, in the sidecar only, and no other key', () => {
    const file = sidecar.env.find(({ name }: EnvEntry) => name === 'SMART_ROUTER_API_KEY_FILE').value;
    const mount = sidecar.volumeMounts.find(({ mountPath }: { mountPath: string }) =>
      file.startsWith(mountPath),
    );
    expect(mount.readOnly).toBe(true);
    const volume = pod.spec.volumes.find(({ name }: { name: string }) => name === mount.name);
    expect(volume.secret.secretName).toBe('smart-router-agent');
    expect(JSON.stringify(containerOf(agents))).not.toContain(mount.name);
    expect(JSON.stringify(manifests)).not.toMatch(/ADMIN/i);
    expect(pod.spec.automountServiceAccountToken).toBe(false);
  });

  it('run without root, capabilities and service account token', () => {
    assertRestricted(agents);
  });

  it('match the selector of the chart, name their tier, and must report after a loss of data', () => {
    expect(readText('deploy/helm/smart-router/values.yaml')).toContain('labelSelector: app=voice-agent');
    expect(pod.metadata.labels).toEqual({ app: 'voice-agent', 'smart-router/tier': 'gold' });
    expect(pod.metadata.annotations).toMatchObject({ 'smart-router/report': 'required' });
    expect(selects(agents.spec.selector.matchLabels, pod.metadata.labels)).toBe(true);
    expect(
      selects(only(manifests, 'PodDisruptionBudget').spec.selector.matchLabels, pod.metadata.labels),
    ).toBe(true);
  });

  it('have names in DNS, also while they drain', () => {
    const service = only(manifests, 'Service', agents.spec.serviceName ?? 'voice-agent');
    expect(service.spec).toMatchObject({ clusterIP: 'None', publishNotReadyAddresses: true });
    expect(selects(service.spec.selector, pod.metadata.labels)).toBe(true);
    const proxy = only(parse(readText('deploy/nginx/voice-proxy.yaml')), 'Deployment');
    expect(envOf(proxy, 'AGENT_DOMAIN')).toBe(`${service.metadata.name}.voice.svc.cluster.local`);
    expect(envOf(proxy, 'AGENT_PORT')).toBe(String(service.spec.ports[0].port));
  });
});

/** Also of the sidecar, if there is one. */
function assertRestricted({ spec }: Manifest): void {
  const { securityContext, containers, initContainers = [] } = spec.template.spec;
  expect(securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
  for (const container of [...containers, ...initContainers]) {
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    expect(container.image).toMatch(/:[\w.-]*\d[\w.-]*$/);
  }
}

describeWith('helm', 'the agents and the chart', () => {
  it('agree on the address of a release named smart-router in namespace voice', () => {
    const args = ['--namespace', 'voice', '--values', `${chart}/ci/minimal-values.yaml`];
    const { stdout } = run('helm', 'template', 'smart-router', chart, ...args);
    const service = only(parse(stdout), 'Service', 'smart-router');
    const { name, namespace } = service.metadata;
    for (const kind of ['StatefulSet', 'Deployment'] as const) {
      const { env } = sidecarOf(only(agentsAs(kind), kind));
      expect(env.find((entry: EnvEntry) => entry.name === 'SMART_ROUTER_URL').value).toBe(
        `http://${name}.${namespace}.svc:${service.spec.ports[0].port}`,
      );
    }
  });

  it('use a user id that the image has too', () => {
    const [deployment] = render('minimal').filter(({ kind }) => kind === 'Deployment');
    expect(readText('Dockerfile')).toContain(
      `USER ${deployment?.spec.template.spec.securityContext.runAsUser}:`,
    );
  });
});

describe('the proxy', () => {
  const conf = readText('deploy/nginx/nginx.conf');
  const proxy = only(parse(readText('deploy/nginx/voice-proxy.yaml')), 'Deployment');

  it('run without root, capabilities and service account token', () => {
    assertRestricted(proxy);
  });

  it('sets every variable of the template and no other', () => {
    const used = [...new Set([...conf.matchAll(/\$\{([A-Z_]+)\}/g)].map(([, name = '']) => name))];
    const filter = new RegExp(envOf(proxy, 'NGINX_ENVSUBST_FILTER'));
    expect(used.filter((name) => !filter.test(name))).toEqual([]);
    const set = containerOf(proxy).env.map(({ name }: EnvEntry) => name);
    // The image finds the resolvers itself.
    expect(used.filter((name) => name !== 'NGINX_LOCAL_RESOLVERS' && !set.includes(name))).toEqual([]);
    expect(set).toContain('NGINX_ENTRYPOINT_LOCAL_RESOLVERS');
  });

  it('has as many workers as its memory limit allows, on nodes of any size', () => {
    const number = (pattern: RegExp) => Number(pattern.exec(conf)?.[1]);
    const workers = number(/^worker_processes (\d+);$/m);
    const connections = number(/^ *worker_connections (\d+);$/m);
    expect(workers).toBe(2);
    const { requests, limits } = containerOf(proxy).resources;
    // Measured: 7 MB for the 16,384 connections of a worker, 18 KB more for a call, which is two of them.
    const idle = workers * (connections / 16_384) * 7 + 4;
    expect(idle).toBeLessThan(Number.parseInt(requests.memory, 10));
    expect(idle + (10_000 * 18) / 1024).toBeLessThan(Number.parseInt(limits.memory, 10));
    expect((workers * connections) / 2).toBeGreaterThan(10_000);
  });

  it('waits for running calls when it is replaced', () => {
    expect(conf).toContain('worker_shutdown_timeout 1h;');
    const sleep = Number(containerOf(proxy).lifecycle.preStop.exec.command[1]);
    expect(proxy.spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThan(3600 + sleep);
  });
});

describe('metrics', () => {
  let texts: [path: string, text: string][];
  beforeAll(() => {
    const files = readdirSync(`${root}deploy`, { recursive: true, withFileTypes: true }).filter((entry) =>
      entry.isFile(),
    );
    texts = files.map(({ parentPath, name }) => {
      const path = `${parentPath}/${name}`.slice(root.length);
      return [path, readText(path)];
    });
  });

  it('manifests and docs name only metrics of the router', () => {
    const documented = new Set(
      [...readText('docs/metrics.md').matchAll(/^\| `(\w+)` \|/gm)].map(([, name = '']) => name),
    );
    const named = texts.flatMap(([path, text]) =>
      [...text.matchAll(/\b(?:smart_router|http_request)_\w+/g)].map(
        ([name]) => [path, name.replace(/_(bucket|count|sum)$/, '')] as const,
      ),
    );
    expect(named.length).toBeGreaterThan(5);
    expect(named.filter(([, name]) => !documented.has(name))).toEqual([]);
  });

  it('the autoscaler of agents uses capacity, load and unmet demand, and does not read missing data as zero', () => {
    const { spec } = only(parse(readText('deploy/examples/agents-keda.yaml')), 'ScaledObject');
    const queries = spec.triggers
      .map(({ metadata }: { metadata: { query: string } }) => metadata.query)
      .join('\n');
    for (const name of ['active_calls', 'capacity_calls', 'unmet_demand_total'])
      expect(queries).toContain(`smart_router_pool_${name}{tier="gold"}`);
    for (const { metadata } of spec.triggers) expect(metadata.ignoreNullValues).toBe('false');
    expect(spec).not.toHaveProperty('fallback');
    const agents = only(parse(readText('deploy/examples/voice-agent-statefulset.yaml')), 'StatefulSet');
    expect(spec.scaleTargetRef).toEqual({
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      name: agents.metadata.name,
    });
  });
});
