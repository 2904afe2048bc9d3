/** Where pods come from. A source says what exists; the pool manager makes the store agree. */
export interface ClusterPod {
  name: string;
  /** Empty when the source has none: then a name is all there is to know a pod by. */
  uid: string;
  state: 'ready' | 'not_ready' | 'terminating';
  /** Wanted by label, annotation or configuration. */
  tier?: string;
  merchant?: string;
  /** Takes calls after a loss of the store only once it has reported what it serves. */
  mustReport: boolean;
}

export interface PodSource {
  readonly name: string;
  list(signal: AbortSignal): Promise<ClusterPod[]>;
}
