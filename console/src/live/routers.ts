/**
 * Which routers there are, and which there were a moment ago. Every router tells of itself each ten seconds and is
 * listed until thirty after its last word: one that has died looks well for half a minute and is then gone without a
 * word. So the page judges by the last word itself, and remembers who left the list.
 */
import type { Replica } from '../types.js';

export interface KnownRouter extends Replica {
  /** `late`: its word is overdue. `gone`: no longer listed. */
  is: 'here' | 'late' | 'gone';
}

/** The ten seconds between two words, and what it takes to write and to read one. */
const lateAfterMs = 13_000;
/** Long enough for somebody who was woken by it. */
const rememberedMs = 10 * 60_000;

/** `storeAwayAtMs`: when the store last failed to answer, which keeps every router from telling; 0: never. */
export function rememberRouters(
  known: readonly KnownRouter[],
  listed: readonly Replica[],
  nowMs: number,
  storeAwayAtMs = 0,
): KnownRouter[] {
  const silentMs = ({ seen_at }: Replica) => nowMs - Math.max(Date.parse(seen_at), storeAwayAtMs);
  // All of them late: clocks differ, or the store was away unnoticed. That says nothing about any one of them.
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
