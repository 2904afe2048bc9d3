/**
 * The Kubernetes objects, as far as the simulator fills or reads them, and the merge patch. All other fields that a
 * client writes are kept.
 */
import { isPlainObject } from '../../config/tiers.js';

export type Labels = Readonly<Record<string, string>>;

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

export interface ObjectMeta {
  name: string;
  generateName?: string | undefined;
  namespace: string;
  uid: string;
  resourceVersion: string;
  generation?: number;
  creationTimestamp: string;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string> | undefined;
  ownerReferences?: OwnerReference[] | undefined;
  managedFields?: object[] | undefined;
}

export interface KubeObject {
  kind: string;
  apiVersion: string;
  metadata: ObjectMeta;
  spec?: object;
  status?: object;
}

/** What a client sends. */
export type Draft = Partial<Omit<KubeObject, 'metadata'>> & { metadata?: Partial<ObjectMeta> };

export interface PodCondition {
  type: string;
  status: 'True' | 'False' | 'Unknown';
  lastProbeTime: string | null;
  lastTransitionTime: string;
  reason?: string;
  message?: string;
}

export interface ContainerState {
  running?: { startedAt: string };
  waiting?: { reason: string; message?: string };
  terminated?: {
    exitCode: number;
    reason: string;
    startedAt?: string;
    finishedAt: string;
    containerID?: string;
  };
}

export interface ContainerStatus {
  name: string;
  ready: boolean;
  started: boolean;
  restartCount: number;
  image: string;
  imageID: string;
  containerID?: string;
  state: ContainerState;
  lastState: ContainerState;
}

export interface PodSpec {
  nodeName?: string;
  terminationGracePeriodSeconds?: number;
  containers: { name: string; image: string; [field: string]: unknown }[];
  [field: string]: unknown;
}

export interface PodStatus {
  phase: 'Pending' | 'Running' | 'Succeeded' | 'Failed' | 'Unknown';
  conditions?: PodCondition[];
  hostIP?: string;
  podIP?: string;
  podIPs?: { ip: string }[];
  startTime?: string;
  containerStatuses?: ContainerStatus[];
  qosClass?: string;
  reason?: string;
  message?: string;
}

export interface Pod extends KubeObject {
  spec: PodSpec;
  status: PodStatus;
}

/** RFC 7386: null removes a field, an object is merged, all other values (lists too) replace. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isPlainObject(patch)) return patch;
  const merged: Record<string, unknown> = isPlainObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = mergePatch(merged[key], value);
  }
  return merged;
}

/** Kubernetes times have whole seconds, except those of a Lease. */
export function kubeTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}
