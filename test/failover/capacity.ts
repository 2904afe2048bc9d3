/** Looks into the current master: which calls of the store have ended, and whether every other pod can take a call. */
import { keysOf } from '../../src/calls/store/keys.js';
import { wait } from '../chaos/child.js';
import type { RedisGroup } from './redis-group.js';
import { pool, prefix } from './settings.js';
import type { Call, Traffic } from './traffic.js';

const keys = keysOf(prefix);
const lookEveryMs = 100;

export class Capacity {
  /** Since when every look has found full capacity. */
  fullSinceMs: number | undefined;
  /** What the last look found. */
  state = 'nothing yet';
  readonly #lost = new Set<Call>();
  #isOpen = true;

  constructor(
    private readonly group: RedisGroup,
    private readonly traffic: Traffic,
    private readonly pods: readonly string[],
  ) {}

  /** Until `stop()`. */
  async run(): Promise<void> {
    for (; this.#isOpen; await wait(lookEveryMs)) {
      try {
        await this.#look();
      } catch (error) {
        this.state = (error as Error).message;
        this.fullSinceMs = undefined;
      }
    }
  }

  stop(): void {
    this.#isOpen = false;
  }

  async #look(): Promise<void> {
    const master = await this.group.master();
    if (!master) throw new Error('no master');
    const askedMs = performance.now();
    const look = master.client.multi().zrange(keys.poolCalls(pool), '0', '-1').smembers(keys.available(pool));
    // Calls of a few seconds look like failed ones: pods that are set back for them still take calls.
    look.zrange(keys.flapping, '0', '-1');
    for (const pod of this.pods) look.zcard(keys.podCalls(pod));
    const replies = ((await look.exec()) ?? []).map(([, value]) => value);
    const [sids, available, setBack, ...loads] = replies as [string[], string[], string[], ...number[]];
    const usable = new Set([...available, ...setBack, ...this.pods.filter((_, i) => (loads[i] ?? 0) > 0)]);
    const missing = this.pods.filter((pod) => !usable.has(pod));
    const held = new Set(sids);
    const { released, unfinished } = this.traffic;
    const stuck: string[] = [];
    for (const sid of sids) {
      const call = released.get(sid);
      // Released since the question: the answer may be older.
      if ((call?.releasedMs ?? 0) >= askedMs) continue;
      if (!unfinished.has(sid) || call) stuck.push(sid);
      if (call && !this.#lost.has(call)) {
        this.#lost.add(call);
        this.traffic.round.lostReleases += 1;
      }
    }
    for (const call of this.#lost) {
      if (held.has(call.sid)) continue;
      this.#lost.delete(call);
      released.delete(call.sid);
      const { round } = this.traffic;
      round.lostReleaseFreeMs = Math.max(
        round.lostReleaseFreeMs,
        askedMs - Math.max(call.releasedMs ?? 0, round.masterAtMs),
      );
    }
    const isFull = stuck.length === 0 && missing.length === 0;
    this.state = `${available.length} pods available, ${sids.length} calls; pods that take none: ${missing.slice(0, 5).join(' ')}; ended calls: ${stuck.slice(0, 5).join(' ')}`;
    this.fullSinceMs = isFull ? (this.fullSinceMs ?? askedMs) : undefined;
  }
}
