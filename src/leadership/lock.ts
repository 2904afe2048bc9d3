/** Where the election keeps its record. Both kinds (Kubernetes Lease, our store) promise compare-and-swap. */
export interface LockRecord {
  /** Empty after a release. */
  holder: string;
  /** Which process wrote it: two processes may share an identity (a pod that was forced away), never this. */
  writer: string;
  /** As the holder promises it; an observer waits this long, by its own clock, before it calls the holder dead. */
  durationMs: number;
  /** ISO times with milliseconds: for people, never compared. */
  acquiredAt: string;
  renewedAt: string;
  /** How often the lock has changed hands. */
  transitions: number;
}

export interface HeldRecord extends LockRecord {
  /** Changes with every write and never comes back: the handle for the next write, and the holder's sign of life. */
  version: string;
}

export interface LeaseLock {
  /** For logs: which lock, where. */
  readonly description: string;
  /** A record that is gone was probably lost with everything else: who wrote the last one writes it again at once. */
  readonly forgets?: boolean;
  /** As it is now, not as a cache remembers it. Undefined when there is none. Ends within `timeoutMs`, or throws. */
  read(timeoutMs: number): Promise<HeldRecord | undefined>;
  /**
   * Writes if the record still has `version` (undefined: if there is none). Undefined when it was not written,
   * because somebody was faster. Throws within `timeoutMs` when it is not known whether it was written, now or later.
   */
  write(record: LockRecord, version: string | undefined, timeoutMs: number): Promise<HeldRecord | undefined>;
}
