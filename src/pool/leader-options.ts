import type { Auditor } from '../calls/audit/auditor.js';
import type { Settings } from '../calls/settings.js';
import type { PoolStore, SilentPod } from '../calls/store/pool-store.js';
import type { CallStore } from '../calls/store/store.js';
import type { Clock } from '../clock.js';
import type { PodSource } from '../cluster/pods.js';
import type { Logger } from '../observe/log.js';

/** What the work of a leader needs; each of its loops takes a part of it. */
export interface LeaderOptions {
  /** The name of this replica, for logs and the event. */
  identity: string;
  source: PodSource;
  settings: Settings;
  store: CallStore;
  pools: PoolStore;
  auditor?: Pick<Auditor, 'audit'>;
  clock: Clock;
  log: Logger;
  reconcileIntervalMs: number;
  cleanupIntervalMs: number;
  /** Undefined: no periodic audit. */
  auditIntervalMs?: number | undefined;
  onCrash?: (loop: string) => void;
  onCallsLost?: (count: number, reason: string) => void;
  onZombies?: (count: number) => void;
  onSilent?: (pods: readonly SilentPod[]) => void;
  onAudited?: (violations: number) => void;
  /** A watch is reopened: `closed` by the server, `expired`, or the reason of `interruptionOf`. */
  onReconnect?: (reason: string) => void;
}
