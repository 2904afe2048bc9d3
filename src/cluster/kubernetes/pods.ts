/**
 * Turns a Kubernetes pod object into a ClusterPod. The object is untrusted: a field of a wrong type counts as missing, and
 * an object without a valid name is ignored.
 */
import { isName, isPlainObject, isPodName } from '../../config/tiers.js';
import type { ClusterPod } from '../pods.js';

type Json = Record<string, unknown>;

/** Kubernetes gives UUIDs, but guarantees only short strings; the store cannot read half a character. */
const isUid = /^[\x21-\x7e]{1,128}$/;

/** The container that serves calls, as kubectl chooses it: named by this annotation, else the first of the spec. */
const defaultContainer = 'kubectl.kubernetes.io/default-container';

export function observePod(object: unknown): ClusterPod | undefined {
  const { metadata, spec, status } = json(object);
  const { name, uid, resourceVersion, labels, annotations, deletionTimestamp } = json(metadata);
  if (typeof name !== 'string' || !isPodName(name)) return undefined;
  const labelOf = (key: string) =>
    json(labels)[`smart-router/${key}`] ?? json(annotations)[`smart-router/${key}`];
  const tier = labelOf('tier');
  const merchant = labelOf('merchant');
  return {
    name,
    uid: typeof uid === 'string' && isUid.test(uid) ? uid : '',
    state: stateOf(json(status), deletionTimestamp !== undefined && deletionTimestamp !== null),
    version: typeof resourceVersion === 'string' ? resourceVersion : undefined,
    ...containerOf(json(spec), json(status), json(annotations)[defaultContainer]),
    tier: isName(tier) ? tier : undefined,
    merchant: isName(merchant) ? merchant : undefined,
    mustReport: labelOf('report') === 'required',
  };
}

function stateOf(status: Json, isDeleted: boolean): ClusterPod['state'] {
  const { phase, podIP } = status;
  if (phase === 'Succeeded' || phase === 'Failed') return 'gone';
  if (isDeleted) return 'terminating';
  const isReady = list(status.conditions).some(({ type, status }) => type === 'Ready' && status === 'True');
  const hasAddress = typeof podIP === 'string' && podIP !== '';
  return phase === 'Running' && isReady && hasAddress ? 'ready' : 'not_ready';
}

type Container = Pick<ClusterPod, 'restarts' | 'startedAt' | 'endedAt'>;

/** Only the container of the agent: a sidecar that ends loses no call. Native sidecars are init containers. */
function containerOf(spec: Json, status: Json, named: unknown): Container {
  const containers = list(spec.containers);
  const statuses = list(status.containerStatuses);
  const agent = (containers.find(({ name }) => name === named) ?? containers[0])?.name;
  const container = agent === undefined ? statuses[0] : statuses.find(({ name }) => name === agent);
  const { restartCount, state, lastState } = container ?? {};
  if (typeof restartCount !== 'number' || !Number.isSafeInteger(restartCount) || restartCount < 0) return {};
  return {
    restarts: restartCount,
    startedAt: oneSecondAfter(json(json(state).running).startedAt),
    endedAt: endOf(json(state), json(json(lastState).terminated), status),
  };
}

/**
 * When a container ended that is terminated, or that waits for its restart. The restart count rises only with the
 * restart, up to five minutes later. The kubelet notices an end a second or two late: until the pod is not ready, it may
 * have got calls.
 */
function endOf({ terminated, waiting }: Json, last: Json, status: Json): string | undefined {
  const isWaiting =
    json(waiting).reason === 'CrashLoopBackOff' || (isPlainObject(waiting) && 'finishedAt' in last);
  if (!isPlainObject(terminated) && !isWaiting) return undefined;
  const unready = list(status.conditions).find(({ type, status }) => type === 'Ready' && status === 'False');
  const ended = oneSecondAfter(isPlainObject(terminated) ? terminated.finishedAt : last.finishedAt) ?? '';
  const noticed = oneSecondAfter(unready?.lastTransitionTime) ?? '';
  return [ended, noticed].sort().at(-1) || undefined;
}

/**
 * Kubernetes truncates to seconds: within that second a call may belong to the old container. Times are compared as
 * strings, which works up to the year 9999.
 */
function oneSecondAfter(time: unknown): string | undefined {
  const ms = typeof time === 'string' ? Date.parse(time) + 1000 : Number.NaN;
  return ms >= 0 && ms < Date.UTC(10_000, 0) ? new Date(ms).toISOString() : undefined;
}

function json(value: unknown): Json {
  return isPlainObject(value) ? value : {};
}

function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(json) : [];
}
