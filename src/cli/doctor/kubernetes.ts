/**
 * Checks of the Kubernetes API: reachable, and allows what the router does. Only reads: write access is checked with a
 * SelfSubjectAccessReview, which every authenticated client may send.
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

/** The API server ends the test watch after this time; it rejects at once. */
const testWatchSeconds = 1;

const podVerbs = 'Its Role needs: pods get, list, watch.';
const leaseVerbs = 'Its Role needs: leases (coordination.k8s.io) get, create, update.';
const selectorHint = 'Correct POD_LABEL_SELECTOR; `kubectl get pods -l SELECTOR` uses the same syntax.';

interface KubernetesTarget {
  api: KubeApi;
  config: Config;
  clock: Clock;
  timeoutMs: number;
}

const name = 'kubernetes';

export async function checkKubernetes(config: Config, clock: Clock, timeoutMs: number): Promise<Check[]> {
  let api: KubeApi;
  try {
    api = await connectKubernetes(config, clock);
  } catch (error) {
    return [fail(name, oneLine(toFailure(error).message), accessHint)];
  }
  const target = { api, config, clock, timeoutMs };
  try {
    const server = await checkServer(target);
    if (server.status === 'fail') return [server];
    const [rights, pods, watch, lease] = await Promise.all([
      checkRights(target),
      checkPods(target),
      checkWatch(target),
      checkLease(target),
    ]);
    return [server, rights, ...pods, watch, lease];
  } finally {
    api.close();
  }
}

const accessHint =
  'Set KUBECONFIG as for kubectl, or run inside the cluster with a service account; `kubectl get pods` must work the same way.';

async function checkServer({ api, config, clock, timeoutMs }: KubernetesTarget): Promise<Check> {
  const through = config.kubeconfig === undefined ? 'without KUBECONFIG' : 'through KUBECONFIG';
  const start = clock.monotonic();
  try {
    const { gitVersion } = await api.json<{ gitVersion?: unknown }>({ path: '/version', timeoutMs });
    const ms = Math.round(clock.monotonic() - start);
    return ok(name, `the API server, found ${through}, answers in ${ms} ms: version ${String(gitVersion)}`);
  } catch (error) {
    if (statusOf(error) === 401) return fail(name, 'the API server rejects the credentials: 401', accessHint);
    // It answers; the next checks show whether it allows what is needed.
    if (statusOf(error) !== undefined)
      return ok(name, `the API server answers, with ${statusOf(error)} to /version`);
    return fail(name, `${sentence(error)}; looked for ${through}`, accessHint);
  }
}

async function checkRights({ api, config, timeoutMs }: KubernetesTarget): Promise<Check> {
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
    if (missing.length === 0) return ok(name, 'the Role allows everything that the router needs');
    const list = missing.map(
      ({ verb, resource, namespace }) => `${verb} ${resource} in namespace ${namespace}`,
    );
    return fail(name, `the Role does not allow: ${list.join(', ')}`, `${podVerbs} ${leaseVerbs}`);
  } catch (error) {
    const hint = 'The checks below use only requests that do not write.';
    return warn(name, `cannot read the permissions: ${sentence(error)}`, hint);
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

async function checkPods({ api, config, clock, timeoutMs }: KubernetesTarget): Promise<Check[]> {
  const name = 'kubernetes pods';
  const { namespace, podLabelSelector: labelSelector } = config;
  const where = `in namespace ${namespace}`;
  const log = silentLogger;
  const source = kubernetesSource({ api, namespace, labelSelector, silenceMs: timeoutMs, clock, log });
  const late = new AbortController();
  const cancel = clock.after(timeoutMs, () => late.abort());
  try {
    const { pods } = await source.list(late.signal);
    if (pods.length === 0) {
      const hint = 'Check POD_LABEL_SELECTOR and NAMESPACE, or start a voice agent.';
      return [warn(name, `the selector matches no pods: ${labelSelector} ${where}`, hint)];
    }
    const ready = pods.filter(({ state }) => state === 'ready').length;
    return [
      ok(name, `${count(pods.length, 'pod')} with ${labelSelector} ${where}, ${ready} of them ready`),
      checkReports(pods),
    ];
  } catch (error) {
    if (late.signal.aborted)
      return [fail(name, `no complete list within ${Math.round(timeoutMs)} ms`, 'Raise --timeout.')];
    return [podsFailure(name, 'list', error, config, 'Check POD_LABEL_SELECTOR and NAMESPACE.')];
  } finally {
    cancel();
  }
}

function podsFailure(name: string, verb: string, error: unknown, config: Config, hint: string): Check {
  const { namespace, podLabelSelector: selector } = config;
  if (statusOf(error) === 403)
    return fail(name, `not allowed to ${verb} pods in namespace ${namespace}`, podVerbs);
  if (statusOf(error) !== 400) return fail(name, sentence(error), hint);
  // The selector is the only part of these requests that can be malformed.
  return fail(name, `the label selector ${selector} is invalid: ${sentence(error)}`, selectorHint);
}

function checkReports(pods: readonly ClusterPod[]): Check {
  const name = 'kubernetes reports';
  const waiting = pods.filter(({ mustReport }) => mustReport).length;
  return ok(
    name,
    waiting === 0
      ? 'no pod has smart-router/report: required; if the store loses its data, all get calls at once, also those that still serve one'
      : `${waiting} of ${count(pods.length, 'pod')} must report before they get calls if the store loses its data`,
  );
}

async function checkWatch({ api, config, clock, timeoutMs }: KubernetesTarget): Promise<Check> {
  const name = 'kubernetes watch';
  const { namespace, podLabelSelector: labelSelector } = config;
  const late = new AbortController();
  const cancel = clock.after(testWatchSeconds * 1000 + timeoutMs, () => late.abort());
  try {
    const lines = api.lines({
      path: `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`,
      query: { watch: 'true', labelSelector, timeoutSeconds: String(testWatchSeconds) },
      timeoutMs: testWatchSeconds * 1000 + timeoutMs,
      signal: late.signal,
    });
    // Read to the end: the stream must end.
    let events = 0;
    for await (const _ of lines) events += 1;
    return ok(name, `the watch delivered ${count(events, 'event')} in ${testWatchSeconds} s`);
  } catch (error) {
    return podsFailure(name, 'watch', error, config, 'Check for a proxy that buffers streams.');
  } finally {
    cancel();
  }
}

async function checkLease({ api, config, clock, timeoutMs }: KubernetesTarget): Promise<Check> {
  const name = 'kubernetes lease';
  if (!config.leaderElectionEnabled) return skip(name, 'LEADER_ELECTION_ENABLED=false: no Lease is used');
  const { leaderElectionNamespace: namespace, leaderElectionLockName } = config;
  const lock = new KubernetesLock({ api, clock, namespace, name: leaderElectionLockName });
  try {
    const record = await lock.read(timeoutMs);
    const state = record?.holder ? `is held by ${record.holder}` : 'has no holder';
    return ok(
      name,
      `${lock.description} ${record ? state : 'does not exist yet; the first leader creates it'}`,
    );
  } catch (error) {
    if (statusOf(error) === 403) return fail(name, `not allowed to read ${lock.description}`, leaseVerbs);
    return fail(name, sentence(error), 'Check LEADER_ELECTION_NAMESPACE and LEADER_ELECTION_LOCK_NAME.');
  }
}

const statusOf = (error: unknown) => (error instanceof KubeError ? error.status : undefined);

const sentence = (error: unknown) => oneLine(error instanceof Error ? error.message : String(error));
