/**
 * Where pods come from. A source says what exists and what changes; the pool manager makes the store agree.
 * A source keeps nothing: whoever asks holds the version it has seen.
 */
export interface ClusterPod {
  name: string;
  /** Empty when the source has none: then a name is all there is to know a pod by. */
  uid: string;
  /** `gone`: it will never serve again, although the source still lists it. */
  state: 'ready' | 'not_ready' | 'terminating' | 'gone';
  /** Of this state: a larger number is newer. Absent where the source has no order. */
  version?: string;
  /** How often its container was started anew; a higher number means that its calls are lost. */
  restarts?: number;
  /** ISO time from which on calls belong to the container that runs now. */
  startedAt?: string;
  /** ISO time; no container runs now, and the calls from before are lost. */
  endedAt?: string;
  /** Wanted by label, annotation or configuration. */
  tier?: string;
  merchant?: string;
  /** Takes calls after a loss of the store only once it has reported what it serves. */
  mustReport: boolean;
}

export interface PodList {
  pods: ClusterPod[];
  /** Where a watch goes on from. */
  version: string;
}

/** A pod as it is now, or only that we have seen everything up to `version`. */
export type PodChange = { version: string; pod?: ClusterPod };

/** The version is too old to go on from: list again. */
export class VersionExpired extends Error {
  override readonly name = 'VersionExpired';
}

/** Why a watch was cut off, where that is ordinary (the server restarted, the connection broke); else undefined. */
export function interruptionOf(error: unknown): string | undefined {
  const { interruption } = (error ?? {}) as { interruption?: unknown };
  return typeof interruption === 'string' ? interruption : undefined;
}

export interface PodSource {
  readonly name: string;
  /** The store was away, or another replica led: what the source remembers of earlier lists says nothing now. */
  startOver?(): void;
  /** Everything there is, at least as new as the moment of asking. */
  list(signal: AbortSignal): Promise<PodList>;
  /**
   * Whether a pod of this name exists, with any labels. False only if the source is sure; an error means unknown. A source
   * without it cannot tell a deleted pod from one that its list left out.
   */
  exists?(name: string, signal: AbortSignal): Promise<boolean>;
  /** The pod that has this name now. A source without it never gives a name twice, or is only listed. */
  read?(name: string, signal: AbortSignal): Promise<ClusterPod | undefined>;
  /**
   * Every change after `version`, in order. Ends when the source ended it (go on from the last version seen);
   * throws VersionExpired, or an error (`interruptionOf` says whether it is an ordinary one). A source without it is only listed.
   */
  watch?(version: string, signal: AbortSignal): AsyncGenerator<PodChange>;
}
