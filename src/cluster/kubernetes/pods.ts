/**
 * What a Kubernetes pod object says about a voice agent. Everything in it is somebody else's word: a field that is
 * missing or of another type counts as not said, and an object without a usable name is no pod.
 */
import { isName, isPodName } from '../../calls/tiers.js';
import type { ClusterPod } from '../pods.js';

type Json = Record<string, unknown>;

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
    uid: typeof uid === 'string' ? uid : '',
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
  const wanted = named ?? list(spec.containers)[0]?.name;
  const container = statuses.find(({ name }) => name === wanted) ?? statuses[0];
  if (typeof container?.restartCount !== 'number') return {};
  const { startedAt } = json(json(container.state).running);
  const startedMs = typeof startedAt === 'string' ? Date.parse(startedAt) : Number.NaN;
  return {
    restarts: container.restartCount,
    // Kubernetes cuts off the fraction: within that second a call may still have been the old container's.
    ...(Number.isNaN(startedMs) ? {} : { startedAt: new Date(startedMs + 1000).toISOString() }),
  };
}

function json(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(json) : [];
}
