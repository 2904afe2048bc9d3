/** The rendered chart: fields, secrets, rights, selectors, probes, shutdown times. */
import { beforeAll, describe, expect, it } from 'vitest';
import { configTable, loadConfig } from '../../src/config/config.js';
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
  run,
  selects,
  template,
} from './manifests.js';

const valueSets = ['minimal', 'tryout', 'everything'];
const secrets = configTable.filter(({ secret }) => secret === true).map(({ name }) => name);
const deployment = (manifests: readonly Manifest[]) => only(manifests, 'Deployment');
const podSpec = (manifests: readonly Manifest[]) => deployment(manifests).spec.template.spec;
const container = (manifests: readonly Manifest[]) => podSpec(manifests).containers[0];
const targets = ({ spec }: Manifest): string[] =>
  spec.ports.map(({ targetPort }: { targetPort: string }) => targetPort);
const env = (manifests: readonly Manifest[]): EnvEntry[] => container(manifests).env;

describeWith('helm', 'the chart', () => {
  it.each(valueSets)('%s: passes helm lint without a warning', (values) => {
    const { code, stdout } = run(
      'helm',
      'lint',
      '--strict',
      chart,
      '-f',
      `${chart}/ci/${values}-values.yaml`,
    );
    expect(stdout).toContain('0 chart(s) failed');
    expect(code).toBe(0);
  });

  it.each(valueSets)('%s: has only fields of the Kubernetes API', (values) => {
    const { stdout } = template(values);
    const written = parse(stdout);
    expect(written.length).toBeGreaterThan(5);
    expect(parseTyped(stdout)).toEqual(written);
  });

  it('the check finds a field that the API does not have', () => {
    const { stdout } = template('minimal');
    const misspelt = stdout.replace('readOnlyRootFilesystem', 'readOnlyRootFileSystem');
    expect(parseTyped(misspelt)).not.toEqual(parse(misspelt));
  });

  it('has the versions of the package', () => {
    const { version } = JSON.parse(readText('package.json'));
    expect(readText('deploy/helm/smart-router/Chart.yaml')).toContain(`appVersion: "${version}"`);
    expect(container(render('minimal')).image).toBe(`registry.example.com/voice/smart-router:${version}`);
  });

  describe.each(valueSets)('%s', (values) => {
    let manifests: Manifest[];
    beforeAll(() => {
      manifests = render(values);
    });

    it('gives the router a valid environment without unknown variables', () => {
      const known = new Set([...configTable.map(({ name }) => name), 'NODE_EXTRA_CA_CERTS', 'NODE_OPTIONS']);
      const names = env(manifests).map(({ name }) => name);
      expect(names.filter((name) => !known.has(name))).toEqual([]);
      expect(new Set(names).size).toBe(names.length);
      const fromSecret = {
        REDIS_URL: 'redis://redis:6379',
        SMART_ROUTER_API_KEY: 'k'.repeat(16),
        SMART_ROUTER_ADMIN_KEY: 'a'.repeat(16),
      };
      const plain = env(manifests).flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]]));
      const config = loadConfig({ ...Object.fromEntries(plain), ...fromSecret, POD_NAME: 'x' }, 'serve');
      expect(config).toMatchObject({ podSource: 'kubernetes', httpHost: '0.0.0.0', warnings: [] });
    });

    it('has secrets in the Secret only', () => {
      for (const { name, value, valueFrom } of env(manifests)) {
        if (!secrets.includes(name) && name !== 'REDIS_URL' && name !== 'DATABASE_URL') continue;
        expect({ name, value, key: valueFrom?.secretKeyRef?.key }).toEqual({ name, key: name });
      }
      const elsewhere = JSON.stringify(manifests.filter(({ kind }) => kind !== 'Secret'));
      expect(elsewhere).not.toMatch(/example-|p%40ss|:secret@/);
    });

    it('runs without root, capabilities and writable file system', () => {
      expect(podSpec(manifests)).toMatchObject({
        enableServiceLinks: false,
        securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      });
      expect(podSpec(manifests).securityContext.runAsUser).toBeGreaterThan(0);
      expect(container(manifests).securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        privileged: false,
        capabilities: { drop: ['ALL'] },
      });
      expect(podSpec(manifests)).not.toHaveProperty('hostNetwork');
      expect(container(manifests).resources).toMatchObject({
        requests: { cpu: expect.anything(), memory: expect.anything() },
        limits: { memory: expect.anything() },
      });
    });

    it('grants only get, list and watch of the agents’ pods, and its own Lease', () => {
      const agents = env(manifests).find(({ name }) => name === 'NAMESPACE')?.value;
      const lease = env(manifests).find(({ name }) => name === 'LEADER_ELECTION_LOCK_NAME')?.value;
      const granted = manifests
        .filter(({ kind }) => kind === 'Role')
        .map(({ metadata, rules }) => ({ namespace: metadata.namespace, rules }));
      const pods = {
        namespace: agents,
        rules: [{ apiGroups: [''], resources: ['pods'], verbs: ['get', 'list', 'watch'] }],
      };
      const leases = { apiGroups: ['coordination.k8s.io'], resources: ['leases'] };
      const election = {
        namespace: 'voice',
        rules: [
          { ...leases, verbs: ['create'] },
          { ...leases, resourceNames: [lease], verbs: ['get', 'update'] },
        ],
      };
      expect(granted).toHaveLength(lease === undefined ? 1 : 2);
      expect(granted).toEqual(expect.arrayContaining(lease === undefined ? [pods] : [pods, election]));
      expect(manifests.filter(({ kind }) => kind.startsWith('Cluster'))).toEqual([]);
      for (const binding of manifests.filter(({ kind }) => kind === 'RoleBinding')) {
        const role = only(manifests, 'Role', binding.roleRef.name);
        expect(role.metadata.namespace).toBe(binding.metadata.namespace);
        expect(binding.subjects).toEqual([
          { kind: 'ServiceAccount', name: podSpec(manifests).serviceAccountName, namespace: 'voice' },
        ]);
      }
    });

    it('selects its own pods, and names ports that they have', () => {
      const { labels } = deployment(manifests).spec.template.metadata;
      const ports = container(manifests).ports.map((port: { name: string }) => port.name);
      const services = manifests.filter(({ kind }) => kind === 'Service');
      expect(selects(deployment(manifests).spec.selector.matchLabels, labels)).toBe(true);
      for (const { spec } of services) expect(selects(spec.selector, labels)).toBe(true);
      expect(ports).toEqual(services.flatMap(targets));
      expect(selects(only(manifests, 'PodDisruptionBudget').spec.selector.matchLabels, labels)).toBe(true);
      const policy = only(manifests, 'NetworkPolicy');
      expect(selects(policy.spec.podSelector.matchLabels, labels)).toBe(true);
      const open = policy.spec.ingress.flatMap((rule: { ports: { port: string }[] }) =>
        rule.ports.map(({ port }) => port),
      );
      expect(open).toEqual(['http', 'metrics']);
      for (const { labelSelector } of podSpec(manifests).topologySpreadConstraints)
        expect(selects(labelSelector.matchLabels, labels)).toBe(true);
    });

    it('has probes on routes that the router serves', () => {
      const paths = readText('docs/api.md');
      const { startupProbe, livenessProbe, readinessProbe } = container(manifests);
      for (const probe of [startupProbe, livenessProbe, readinessProbe]) {
        expect(paths).toContain(`\`GET ${probe.httpGet.path}\``);
        expect(probe.httpGet.port).toBe('http');
      }
      expect([startupProbe, livenessProbe, readinessProbe].map(({ httpGet }) => httpGet.path)).toEqual([
        '/api/v1/health',
        '/api/v1/health',
        '/api/v1/ready',
      ]);
    });

    it('has a grace period for endpoints, requests in flight and the Lease', () => {
      const sleep = Number(container(manifests).lifecycle.preStop.exec.command[1]);
      const seconds = (variable: string) =>
        Number.parseInt(env(manifests).find(({ name }) => name === variable)?.value ?? '0', 10);
      const release = seconds('LEADER_ELECTION_RENEW_DEADLINE') / 3;
      expect(container(manifests).lifecycle.preStop.exec.command[0]).toBe('sleep');
      expect(sleep).toBeGreaterThan(0);
      const { terminationGracePeriodSeconds } = podSpec(manifests);
      expect(Number.isInteger(terminationGracePeriodSeconds)).toBe(true);
      expect(terminationGracePeriodSeconds).toBeGreaterThanOrEqual(
        sleep + seconds('SHUTDOWN_TIMEOUT') + release + 5,
      );
    });

    it('has disk space for all spooled outcomes of records', () => {
      const [, most] =
        /RECORDS_SPOOL_FOLDER.*at most (\d+) MB are kept/.exec(readText('docs/configuration.md')) ?? [];
      const [{ emptyDir }] = podSpec(manifests).volumes;
      expect(emptyDir.sizeLimit).toMatch(/^\d+Mi$/);
      expect(Number.parseInt(emptyDir.sizeLimit, 10)).toBeGreaterThan(Number(most));
    });

    it('rolls without fewer routers, and spreads over zones and nodes', () => {
      expect(deployment(manifests).spec.strategy).toEqual({
        type: 'RollingUpdate',
        rollingUpdate: { maxUnavailable: 0, maxSurge: 1 },
      });
      expect(
        podSpec(manifests).topologySpreadConstraints.map(
          ({ topologyKey }: { topologyKey: string }) => topologyKey,
        ),
      ).toEqual(['topology.kubernetes.io/zone', 'kubernetes.io/hostname']);
    });

    it('may connect to DNS, Redis and the Kubernetes API; to Postgres and the web only if enabled', () => {
      const { egress } = only(manifests, 'NetworkPolicy').spec;
      const ports = egress.map((rule: { ports: { port: number }[] }) => [
        ...new Set(rule.ports.map(({ port }) => port)),
      ]);
      const usual = [[53], [6379, 26379], [443, 6443]];
      expect(ports).toEqual(values === 'everything' ? [...usual, [5432], [80, 443]] : usual);
    });
  });

  it('reads every secret of the router from an existing Secret', () => {
    const taken = env(render('minimal')).flatMap(({ valueFrom }) => valueFrom?.secretKeyRef?.key ?? []);
    expect(secrets.filter((name) => !taken.includes(name))).toEqual([]);
    expect(taken).toEqual(expect.arrayContaining(['REDIS_URL', 'DATABASE_URL']));
  });

  it('has three replicas, and an autoscaler only if enabled', () => {
    expect(deployment(render('minimal')).spec.replicas).toBe(3);
    const scaled = render('everything');
    expect(only(scaled, 'HorizontalPodAutoscaler').spec.scaleTargetRef).toEqual({
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      name: deployment(scaled).metadata.name,
    });
  });

  it('has a monitor, an ingress and an autoscaler only if enabled', () => {
    const kinds = render('minimal').map(({ kind }) => kind);
    expect(kinds).not.toEqual(expect.arrayContaining(['ServiceMonitor']));
    expect(kinds).not.toEqual(expect.arrayContaining(['Ingress']));
    expect(kinds).not.toEqual(expect.arrayContaining(['HorizontalPodAutoscaler']));
    const all = render('everything');
    const { selector, endpoints } = only(all, 'ServiceMonitor').spec;
    const watched = all.filter(
      ({ kind, metadata }) => kind === 'Service' && selects(selector.matchLabels, metadata.labels),
    );
    expect(watched.map(({ metadata }) => metadata.name)).toEqual(['calls-smart-router-metrics']);
    expect(watched[0]?.spec.ports.map(({ name }: { name: string }) => name)).toEqual([endpoints[0].port]);
  });

  it.each(['ClusterIP', 'NodePort', 'LoadBalancer'])(
    'a Service of type %s publishes the API; the metrics, which need no key, stay inside the cluster',
    (type) => {
      const services = render('minimal', `service.type="${type}"`, 'service.annotations={"a":"b"}').filter(
        ({ kind }) => kind === 'Service',
      );
      expect(services.map((service) => [service.metadata.name, service.spec.type, targets(service)])).toEqual(
        [
          ['calls-smart-router', type, ['http']],
          ['calls-smart-router-metrics', 'ClusterIP', ['metrics']],
        ],
      );
      expect(services.map(({ metadata }) => metadata.annotations)).toEqual([{ a: 'b' }, undefined]);
    },
  );

  it('the longest name leaves room for suffixes', () => {
    for (const { kind, metadata } of render('everything', `fullnameOverride="${'a'.repeat(63)}"`))
      if (kind === 'Service') expect(metadata.name.length).toBeLessThanOrEqual(63);
  });

  it('the ingress publishes the webhooks only', () => {
    const { rules } = only(render('everything'), 'Ingress').spec;
    const paths: string[] = rules[0].http.paths.map(({ path }: { path: string }) => path);
    expect(paths).toEqual(['/api/v1/twilio', '/api/v1/plivo', '/api/v1/exotel']);
    for (const path of paths) expect(readText('docs/api.md')).toContain(`${path}/allocate\``);
  });

  it('changed secrets restart the pods; a new chart version alone does not', () => {
    const template = (...sets: string[]) => deployment(render('tryout', ...sets)).spec.template;
    const changed = template('secret.data.SMART_ROUTER_API_KEY="another-key-0123456"');
    expect(changed.metadata.annotations['checksum/secret']).not.toBe(
      template().metadata.annotations['checksum/secret'],
    );
    expect(Object.keys(template().metadata.labels)).not.toContain('helm.sh/chart');
  });

  it('a router that loses leadership keeps serving, unless onLoss is exit', () => {
    const onLoss = (...sets: string[]) =>
      env(render('minimal', ...sets)).find(({ name }) => name === 'LEADER_LOSS')?.value;
    expect(onLoss()).toBe('follow');
    expect(onLoss('leaderElection.onLoss="exit"')).toBe('exit');
  });

  it('two releases in one namespace do not share a Lease', () => {
    const leaseOf = (release: string) =>
      env(
        parse(run('helm', 'template', release, chart, '-f', `${chart}/ci/minimal-values.yaml`).stdout),
      ).find(({ name }) => name === 'LEADER_ELECTION_LOCK_NAME')?.value;
    expect(leaseOf('smart-router')).toBe('smart-router-leader');
    expect(leaseOf('other')).toBe('other-smart-router-leader');
  });

  it('prints the next commands with the names of the release', () => {
    const { stdout } = run(
      'helm',
      'install',
      'calls',
      chart,
      '-n',
      'voice',
      '--dry-run=client',
      '-f',
      `${chart}/ci/minimal-values.yaml`,
    );
    expect(stdout).toContain('rollout status deployment/calls-smart-router');
    expect(stdout).toContain('http://calls-smart-router.voice.svc:8080');
    expect(stdout).toContain('on the ports 6379, 26379 only');
    expect(stdout).toContain('has the key DATABASE_URL, set networkPolicy.egress.postgres.enabled');
    expect(stdout).toContain('fetch pages, set networkPolicy.egress.web.enabled');
  });
});

describe('the chart’s values', () => {
  const schema = JSON.parse(readText('deploy/helm/smart-router/values.schema.json'));

  it('cover every variable of the router, except those that the chart sets', () => {
    const ownList = readText('deploy/helm/smart-router/templates/_checks.tpl').matchAll(/^- ([A-Z_]+)$/gm);
    const own = [...ownList].map(([, name = '']) => name).filter((name) => name !== 'NODE_EXTRA_CA_CERTS');
    // Not offered: the pods come from Kubernetes, found through the service account, there are always keys, and no
    // engine is embedded.
    const without = ['STATIC_PODS', 'REGISTERED_POD_TTL', 'KUBECONFIG', 'AUTH_DISABLED', 'DATABASE_FOLDER'];
    // Set by Kubernetes in every pod.
    without.push('KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT');
    const covered = [...Object.keys(schema.properties.config.properties), ...own, ...without];
    const names = configTable.map(({ name }) => name);
    expect(covered.filter((name) => !names.includes(name))).toEqual([]);
    expect(
      names.filter((name) => !covered.includes(name)),
      'new variables: add them to properties.config of values.schema.json, or to the chart’s own',
    ).toEqual([]);
  });

  it('a secret is a key of the Secret, never of config', () => {
    expect(Object.keys(schema.properties.secret.properties.data.properties)).toEqual(
      expect.arrayContaining(secrets),
    );
    expect(Object.keys(schema.properties.config.properties).filter((name) => secrets.includes(name))).toEqual(
      [],
    );
  });

  it('every value has a comment', () => {
    const lines = readText('deploy/helm/smart-router/values.yaml').split('\n');
    let explained = false;
    const unexplained = lines.filter((line) => {
      if (line.trimStart().startsWith('#')) explained = true;
      else if (line === '') explained = false;
      return line !== '' && !explained;
    });
    expect(unexplained).toEqual([]);
  });

  it('unknown names are refused everywhere', () => {
    type Schema = { type?: string; properties?: Record<string, Schema>; additionalProperties?: unknown };
    const open = (node: Schema, path: string): string[] => [
      ...(node.properties && node.additionalProperties !== false ? [path] : []),
      ...Object.entries(node.properties ?? {}).flatMap(([key, child]) => open(child, `${path}.${key}`)),
    ];
    expect(open(schema, 'values')).toEqual([]);
  });
});
