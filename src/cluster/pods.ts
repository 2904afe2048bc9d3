/**
 * Pod sources: each lists the pods and reports their changes; the pool manager updates the store. A source is stateless:
 * its caller keeps the last version.
 */
import type { StaticPod } from '../config/config.js';

export interface ClusterPod {
  name: string;
  /** Empty when the source has none: then only the name identifies a pod. */
  uid: string;
  /** `gone`: it has ended, although the source still lists it. */
  state: 'ready' | 'not_ready' | 'terminating' | 'gone';
  /** Of this state: a larger number is newer. Absent where the source has no order. */
  version?: string | undefined;
  /** Restart count of its container; a higher one means that its calls are lost. */
  restarts?: number;
  /** ISO time from which calls belong to the running container. */
  startedAt?: string | undefined;
  /** ISO time; no container is running, and earlier calls are lost. */
  endedAt?: string | undefined;
  /** Wanted by label, annotation or configuration. */
  tier?: string | undefined;
  merchant?: string | undefined;
  /** After a loss of the store it gets calls only once it has reported its calls. */
  mustReport: boolean;
}

export interface PodList {
  pods: ClusterPod[];
  /** Where a watch starts. */
  version: string;
}

/** The new state of a pod; without `pod` only progress up to `version`. */
export type PodChange = { version: string; pod?: ClusterPod };

/** The version is too old to watch from: list again. */
export class VersionExpired extends Error {
  override readonly name = 'VersionExpired';
}

/** Why a watch was interrupted, for ordinary reasons (a server restart, a broken connection); else undefined. */
export function interruptionOf(error: unknown): string | undefined {
  const { interruption } = (error ?? {}) as { interruption?: unknown };
  return typeof interruption === 'string' ? interruption : undefined;
}

export interface PodSource {
  readonly name: string;
  /** Forgets earlier lists: the store was unreachable, or another replica was the leader. */
  startOver?(): void;
  /** All pods, at least as new as the call. */
  list(signal: AbortSignal): Promise<PodList>;
  /**
   * Whether a pod of this name exists, with any labels. False only if the source is sure; an error means unknown. Absent
   * where a deleted pod cannot be told from one that the list left out.
   */
  exists?(name: string, signal: AbortSignal): Promise<boolean>;
  /** The current pod of this name. Absent where names are never reused, or without a watch. */
  read?(name: string, signal: AbortSignal): Promise<ClusterPod | undefined>;
  /**
   * Every change after `version`, in order. Ends when the server ends it (resume from the last version); throws
   * VersionExpired, or an error (see `interruptionOf`). Absent: the source is only listed.
   */
  watch?(version: string, signal: AbortSignal): AsyncGenerator<PodChange>;
}

/** The pods of `STATIC_PODS`, always ready: for a laptop, a test, or machines without Kubernetes. */
export function staticSource(pods: readonly StaticPod[]): PodSource {
  const listed = pods.map((pod): ClusterPod => ({ ...pod, uid: '', state: 'ready', mustReport: false }));
  return { name: 'static', list: async () => ({ pods: listed, version: '' }) };
}
