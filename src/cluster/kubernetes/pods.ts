/**
 * What a Kubernetes pod object says about a voice agent. Everything in it is somebody else's word: a field that is
 * missing or of another type counts as not said, and an object without a usable name is no pod.
 */
import { isName, isPodName } from '../../calls/tiers.js';
import type { ClusterPod } from '../pods.js';

type Json = Record<string, unknown>;

/** Kubernetes gives UUIDs and promises only that they are short texts; the store cannot read half a character. */
const isUid = /^[\x21-\x7e]{1,128}$/;

/** The container that serves calls, as kubectl chooses it: named by this annotation, else the first of the spec. */
const defaultContainer = 'kubectl.kubernetes.io/default-container';

export function observePod(object: unknown): ClusterPod | undefined {
  const { metadata, spec, status } = json(object);
  const { name, uid, resourceVersion, labels, annotations, deletionTimestamp } = json(metadata);
  if (typeof name !== 'string' || !isPodName(name)) return undefined;
  const wish = (key: string): string | undefined => {
    const value = json(labels)[`smart-router/${key}`] ?? json(annotations)[`smart-router/${key}`];
    return typeof value === 'string' ? value : undefined;
  };
  const tier = wish('tier');
  const merchant = wish('merchant');
  return {
    name,
    uid: typeof uid === 'string' && isUid.test(uid) ? uid : '',
    state: stateOf(json(status), deletionTimestamp !== undefined && deletionTimestamp !== null),
    ...(typeof resourceVersion === 'string' ? { version: resourceVersion } : {}),
    ...containerOf(json(spec), json(status), json(annotations)[defaultContainer]),
    ...(tier !== undefined && isName(tier) ? { tier } : {}),
    ...(merchant !== undefined && isName(merchant) ? { merchant } : {}),
    mustReport: wish('report') === 'required',
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

/** Only the agent's own container: a sidecar that restarts takes no call with it. */
function containerOf(spec: Json, status: Json, named: unknown): Pick<ClusterPod, 'restarts' | 'startedAt'> {
  const statuses = list(status.containerStatuses);
  const first = list(spec.containers)[0]?.name;
  const container =
    statuses.find(({ name }) => name === named) ?? statuses.find(({ name }) => name === first) ?? statuses[0];
  const { restartCount, state } = container ?? {};
  if (typeof restartCount !== 'number' || !Number.isSafeInteger(restartCount) || restartCount < 0) return {};
  const startedAt = oneSecondAfter(json(json(state).running).startedAt);
  return { restarts: restartCount, ...(startedAt === undefined ? {} : { startedAt }) };
}

/**
 * Kubernetes cuts off the fraction: within that second a call may still have been the old container's. Times are
 * compared as texts, which works up to the year 9999.
 */
function oneSecondAfter(time: unknown): string | undefined {
  const ms = typeof time === 'string' ? Date.parse(time) + 1000 : Number.NaN;
  return ms >= 0 && ms < Date.UTC(10_000, 0) ? new Date(ms).toISOString() : undefined;
}

function json(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(json) : [];
}
