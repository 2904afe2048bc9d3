/**
 * The Kubernetes API: reachable, and open to what the router asks of it. Everything here only reads: what the router may
 * write is asked with a SelfSubjectAccessReview, which every authenticated client may send.
 */

import type { Clock } from '../../clock.js';
import { connectKubernetes, type KubeApi, KubeError } from '../../cluster/kubernetes/api.js';
import { kubernetesSource } from '../../cluster/kubernetes/source.js';
import type { ClusterPod } from '../../cluster/pods.js';
import type { Config } from '../../config/config.js';
import { KubernetesLock } from '../../leadership/kubernetes-lock.js';
import { silentLogger } from '../../observe/log.js';
import { type Check, fail, ok, skip, warn } from '../commands/doctor.js';
import { oneLine, toFailure } from '../failure.js';
import { count } from '../format.js';

/** The API server ends the trial watch after this long; what it refuses, it refuses at once. */
const trialWatchSeconds = 1;

const podVerbs = 'Its Role needs: pods get, list, watch.';
const leaseVerbs = 'Its Role needs: leases (coordination.k8s.io) get, create, update.';
const selectorHint = 'Correct POD_LABEL_SELECTOR; `kubectl get pods -l SELECTOR` takes the same.';

interface Asked {
  api: KubeApi;
  config: Config;
  clock: Clock;
  timeoutMs: number;
}

export async function checkKubernetes(config: Config, clock: Clock, timeoutMs: number): Promise<Check[]> {
  const name = 'kubernetes';
  let api: KubeApi;
  try {
    api = await connectKubernetes(config.kubeconfig, clock);
  } catch (error) {
    return [fail(name, oneLine(toFailure(error).message), findIt)];
  }
  const asked = { api, config, clock, timeoutMs };
  try {
    const server = await checkServer(name, asked);
    if (server.status === 'fail') return [server];
    const [rights, pods, watch, lease] = await Promise.all([
      checkRights(asked),
      checkPods(asked),
      checkWatch(asked),
      checkLease(asked),
    ]);
    return [server, rights, ...pods, watch, lease];
  } finally {
    api.close();
  }
}

const findIt =
  'Set KUBECONFIG as for kubectl, or run inside the cluster with a service account; `kubectl get pods` must work the same way.';

async function checkServer(name: string, { api, config, clock, timeoutMs }: Asked): Promise<Check> {
  const through = config.kubeconfig === undefined ? 'without KUBECONFIG' : 'through KUBECONFIG';
  const start = clock.monotonic();
  try {
    const { gitVersion } = await api.json<{ gitVersion?: unknown }>({ path: '/version', timeoutMs });
    const ms = Math.round(clock.monotonic() - start);
    return ok(name, `the API server, found ${through}, answers in ${ms} ms: version ${String(gitVersion)}`);
  } catch (error) {
    if (statusOf(error) === 401) return fail(name, 'the API server does not know us: 401', findIt);
    // It answered; what it thinks of the questions that matter, the next lines tell.
    if (statusOf(error) !== undefined)
      return ok(name, `the API server answers, with ${statusOf(error)} to /version`);
    return fail(name, `${sentence(error)}; looked for ${through}`, findIt);
  }
}

async function checkRights({ api, config, timeoutMs }: Asked): Promise<Check> {
  const name = 'kubernetes rights';
  const pods = { group: '', resource: 'pods', namespace: config.namespace };
  const leases = {
    group: 'coordination.k8s.io',
    resource: 'leases',
    namespace: config.leaderElectionNamespace,
  };
  const needed = [
    ...['get', 'list', 'watch'].map((verb) => ({ ...pods, verb })),
    ...(config.leaderElectionEnabled
      ? [
          { ...leases, verb: 'create' },
          // RBAC may limit these to the one Lease; it cannot limit create.
          ...['get', 'update'].map((verb) => ({ ...leases, verb, name: config.leaderElectionLockName })),
        ]
      : []),
  ];
  try {
    const allowed = await Promise.all(needed.map((attributes) => mayDo(api, attributes, timeoutMs)));
    const missing = needed.filter((_, i) => !allowed[i]);
    if (missing.length === 0) return ok(name, 'the Role allows everything that the router does');
    const list = missing.map(
      ({ verb, resource, namespace }) => `${verb} ${resource} in namespace ${namespace}`,
    );
    return fail(name, `the Role does not allow: ${list.join(', ')}`, `${podVerbs} ${leaseVerbs}`);
  } catch (error) {
    const hint = 'The lines below try what can be tried without writing.';
    return warn(name, `what the Role allows cannot be read: ${sentence(error)}`, hint);
  }
}

async function mayDo(api: KubeApi, resourceAttributes: object, timeoutMs: number): Promise<boolean> {
  const review = await api.json<{ status?: { allowed?: unknown } }>({
    method: 'POST',
    path: '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
    body: {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      spec: { resourceAttributes },
    },
    timeoutMs,
  });
  return review.status?.allowed === true;
}

async function checkPods({ api, config, clock, timeoutMs }: Asked): Promise<Check[]> {
  const name = 'kubernetes pods';
  const { namespace, podLabelSelector: labelSelector } = config;
  const where = `in namespace ${namespace}`;
  const source = kubernetesSource({
    api,
    namespace,
    labelSelector,
    silenceMs: timeoutMs,
    clock,
    log: silentLogger,
  });
  const late = new AbortController();
  const cancel = clock.after(timeoutMs, () => late.abort());
  try {
    const { pods } = await source.list(late.signal);
    if (pods.length === 0) {
      return [
        warn(
          name,
          `the selector matches nothing: no pod has ${labelSelector} ${where}`,
          'Check POD_LABEL_SELECTOR and NAMESPACE, or start a voice agent.',
        ),
      ];
    }
    const ready = pods.filter(({ state }) => state === 'ready').length;
    return [
      ok(name, `${count(pods.length, 'pod')} with ${labelSelector} ${where}, ${ready} of them ready`),
      checkReports(pods),
    ];
  } catch (error) {
    if (late.signal.aborted)
      return [fail(name, `no whole list within ${Math.round(timeoutMs)} ms`, 'Allow more with --timeout.')];
    if (statusOf(error) === 403) return [fail(name, `we may not list pods ${where}`, podVerbs)];
    if (statusOf(error) === 400) return [invalidSelector(name, labelSelector, error)];
    return [fail(name, `${sentence(error)}`, 'Check POD_LABEL_SELECTOR and NAMESPACE.')];
  } finally {
    cancel();
  }
}

/** The selector is the only part of these requests that the API server can find malformed. */
function invalidSelector(name: string, selector: string, error: unknown): Check {
  return fail(name, `the label selector ${selector} is invalid: ${sentence(error)}`, selectorHint);
}

function checkReports(pods: readonly ClusterPod[]): Check {
  const name = 'kubernetes reports';
  const waiting = pods.filter(({ mustReport }) => mustReport).length;
  return ok(
    name,
    waiting === 0
      ? "no pod says smart-router/report: required; after a loss of the store's content all take calls at once, also those that still serve one"
      : `${waiting} of ${count(pods.length, 'pod')} must report before they take calls after a loss of the store's content`,
  );
}

async function checkWatch({ api, config, clock, timeoutMs }: Asked): Promise<Check> {
  const name = 'kubernetes watch';
  const { namespace, podLabelSelector: labelSelector } = config;
  const late = new AbortController();
  const cancel = clock.after(trialWatchSeconds * 1000 + timeoutMs, () => late.abort());
  try {
    const lines = api.lines({
      path: `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`,
      query: { watch: 'true', labelSelector, timeoutSeconds: String(trialWatchSeconds) },
      timeoutMs: trialWatchSeconds * 1000 + timeoutMs,
      signal: late.signal,
    });
    // To its end: that it has one is part of what is tried.
    let events = 0;
    for await (const _ of lines) events += 1;
    return ok(
      name,
      `pods and their changes come as a stream: ${count(events, 'event')} in ${trialWatchSeconds} s`,
    );
  } catch (error) {
    if (statusOf(error) === 403)
      return fail(name, `we may not watch pods in namespace ${namespace}`, podVerbs);
    if (statusOf(error) === 400) return invalidSelector(name, labelSelector, error);
    return fail(name, sentence(error), 'Is there a proxy that holds streams back?');
  } finally {
    cancel();
  }
}

async function checkLease({ api, config, clock, timeoutMs }: Asked): Promise<Check> {
  const name = 'kubernetes lease';
  if (!config.leaderElectionEnabled) return skip(name, 'LEADER_ELECTION_ENABLED=false: no Lease is used');
  const { leaderElectionNamespace: namespace, leaderElectionLockName } = config;
  const lock = new KubernetesLock({ api, clock, namespace, name: leaderElectionLockName });
  try {
    const record = await lock.read(timeoutMs);
    if (!record) return ok(name, `${lock.description} is not there yet; the first leader creates it`);
    return ok(name, `${lock.description} is held by ${record.holder || 'nobody'}`);
  } catch (error) {
    if (statusOf(error) === 403) return fail(name, `we may not read ${lock.description}`, leaseVerbs);
    return fail(name, sentence(error), 'Check LEADER_ELECTION_NAMESPACE and LEADER_ELECTION_LOCK_NAME.');
  }
}

const statusOf = (error: unknown) => (error instanceof KubeError ? error.status : undefined);

const sentence = (error: unknown) => oneLine(error instanceof Error ? error.message : String(error));
