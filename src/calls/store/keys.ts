/** Names of the keys that TypeScript touches by itself; all others are built inside the scripts (lua/lib). */
import type { PoolId } from '../../config/tiers.js';

export interface Keys {
  tierConfig: string;
  tierVersion: string;
  merchantConfig: string;
  pools: string;
  events: string;
  /** What is rare among the events, kept for longer. */
  journal: string;
  history: string;
  dataVersion: string;
  /** Who leads, when the election has its lock in our store. */
  leader: string;
  /** Every key of ours. */
  pattern: string;
  callPrefix: string;
  podMetadata: string;
  podCallsPrefix: string;
  reported: string;
  removalsHeld: string;
  removalsConfirmed: string;
  assigned(pool: PoolId): string;
  available(pool: string): string;
  /** Live calls of a pool by deadline. */
  calls(pool: string): string;
}

export function keysOf(prefix: string): Keys {
  return {
    tierConfig: `${prefix}tier:config`,
    tierVersion: `${prefix}tier:version`,
    merchantConfig: `${prefix}merchant:config`,
    pools: `${prefix}pools`,
    events: `${prefix}events`,
    journal: `${prefix}journal`,
    history: `${prefix}history`,
    dataVersion: `${prefix}data:version`,
    leader: `${prefix}leader`,
    pattern: `${escapeGlob(prefix)}*`,
    callPrefix: `${prefix}call:`,
    podMetadata: `${prefix}pod:metadata`,
    podCallsPrefix: `${prefix}pod:calls:`,
    reported: `${prefix}reported`,
    removalsHeld: `${prefix}removals:held`,
    removalsConfirmed: `${prefix}removals:confirmed`,
    assigned: (pool) => `${prefix}${pool}:assigned`,
    available: (pool) => `${prefix}${pool}:${pool.startsWith('merchant:') ? 'pods' : 'available'}`,
    calls: (pool) => `${prefix}${pool}:calls`,
  };
}

function escapeGlob(text: string): string {
  return text.replace(/[*?[\]\\]/g, '\\$&');
}
