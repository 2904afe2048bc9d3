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
    private readonly pods: number,
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
    const replies = await master.client
      .multi()
      .zrange(keys.poolCalls(pool), '0', '-1')
      .scard(keys.available(pool))
      .exec();
    const [sids, available] = (replies ?? []).map(([, value]) => value) as [string[], number];
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
      round.lostReleaseFreeMs = Math.max(round.lostReleaseFreeMs, askedMs - (call.releasedMs ?? askedMs));
    }
    const isFull = stuck.length === 0 && available + sids.length === this.pods;
    this.state = `${available} pods available, ${sids.length} with calls, ended: ${stuck.slice(0, 5).join(' ')}`;
    this.fullSinceMs = isFull ? (this.fullSinceMs ?? askedMs) : undefined;
  }
}
