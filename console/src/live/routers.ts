/**
 * The routers, and those that disappeared recently. Every router sends a heartbeat every 10 s and is listed for 30 s after
 * the last one. So the page uses the time of the last heartbeat, and remembers routers that left the list.
 */
import type { Replica } from '../types.js';

export interface KnownRouter extends Replica {
  /** `late`: its heartbeat is overdue. `gone`: no longer listed. */
  is: 'here' | 'late' | 'gone';
}

/** The 10 s between heartbeats, and time to write and read one. */
const lateAfterMs = 13_000;
/** Long enough for an operator on call. */
const rememberedMs = 10 * 60_000;

/** `storeFailedAtMs`: when the store last failed, which stops all heartbeats; 0: never. */
export function rememberRouters(
  known: readonly KnownRouter[],
  listed: readonly Replica[],
  nowMs: number,
  storeFailedAtMs = 0,
): KnownRouter[] {
  const silentMs = ({ seen_at }: Replica) => nowMs - Math.max(Date.parse(seen_at), storeFailedAtMs);
  // If all are late, clocks differ or the store failed unnoticed: no router is to blame.
  const isTelling = listed.some((router) => silentMs(router) < lateAfterMs);
  const names = new Set(listed.map(({ name }) => name));
  const unlisted = known.filter(
    ({ name, seen_at }) => !names.has(name) && nowMs - Date.parse(seen_at) < rememberedMs,
  );
  return [
    ...listed.map((router): KnownRouter => {
      const isLate = isTelling && silentMs(router) >= lateAfterMs;
      return { ...router, is: isLate ? 'late' : 'here' };
    }),
    ...unlisted.map((router): KnownRouter => {
      const isGone = silentMs(router) >= lateAfterMs;
      return isGone ? { ...router, is: 'gone' } : router;
    }),
  ].sort((a, b) => (a.name < b.name ? -1 : 1));
}
