/** Who calls: asks for a pod, speaks with its agent for a while, and hangs up, with or without saying so. */
import type { Allocation, Waiting } from '../../src/calls/store/store.js';
import { AppError } from '../../src/errors.js';
import { merchantIds } from './configuration.js';
import type { KnownCall } from './history.js';
import type { World } from './world.js';

const callsPerSecond = 0.2;
const holdMs = 40_000;
const renewEveryMs = 30_000;
const askEveryMs = 4000;

export class Callers {
  #sids = 0;
  /** The last answer to each call that has waited. */
  readonly waited = new Map<string, Waiting & { atMs: number }>();
  isTaking = true;
  /** Chance that the provider asks twice. */
  duplicates = 0.02;
  /** Chance that a caller hangs up before the connection, and no status arrives. */
  hangUps = 0.02;
  rateFactor = 1;
  /** Chance that a call waits for a pod, and that its caller hangs up each time that it has waited. */
  waiting = 0.5;
  impatience = 0.05;

  constructor(private readonly world: World) {}

  start(): void {
    const { traffic, time } = this.world;
    const gapMs = (-Math.log(1 - traffic.next()) / (callsPerSecond * this.rateFactor)) * 1000;
    time.after(gapMs, () => {
      if (this.isTaking) {
        this.#sids += 1;
        const sid = `CA${this.#sids}`;
        const merchantId = traffic.pick(merchantIds);
        void this.#call(sid, merchantId);
        // The provider asks twice, perhaps at another router.
        if (traffic.next() < this.duplicates) void this.#allocate(sid, merchantId).catch(() => undefined);
      }
      this.start();
    });
  }

  /** Asks for a pod, and with `waits` again until the call has one. Undefined: the caller hung up before. */
  async #allocate(sid: string, merchantId: string, waits = false): Promise<KnownCall | undefined> {
    const { world } = this;
    const { history, store, traffic } = world;
    const request = { callSid: sid, merchantId, provider: 'twilio', flow: 'v2', template: 't' };
    // The pod was handed over after the last answer that the call waits.
    let before = history.before();
    let setBackBefore = store.setBackMs;
    const ask = async () => {
      const now = { before: history.before(), setBackBefore: store.setBackMs };
      const found = await world.askAny(
        (calls): Promise<Allocation | Waiting> =>
          waits ? calls.allocateOrWait(request) : calls.allocate(request),
      );
      if ('podName' in found) return found;
      this.#checkPlace(sid, merchantId, found);
      ({ before, setBackBefore } = now);
      return undefined;
    };
    let answer = await ask();
    while (!answer) {
      if (traffic.next() < this.impatience) return this.#leave(sid);
      await world.wait(askEveryMs);
      answer = await ask();
    }
    const { podName: pod, sourcePool: pool, fence, leaseExpiresAtMs: leaseUntilMs, wasExisting } = answer;
    const uid = world.agents.all.get(pod)?.uid ?? '';
    const { leaseTtlMs, noShowTimeoutMs } = world.times;
    const firstLeaseMs = noShowTimeoutMs > 0 ? Math.min(noShowTimeoutMs, leaseTtlMs) : leaseTtlMs;
    // A call that was there has another lease by now; one from a clock that was set back a fence ahead of its time.
    const storeMs = Math.min(fence / 1000, leaseUntilMs - firstLeaseMs);
    const isBeforeItsPod = world.agents.isBeforeItsPod(pod, storeMs);
    const setBackMs = store.setBackMs - setBackBefore;
    const allocatedAtMs = history.nowMs() - (store.nowMs - storeMs) - setBackMs;
    return history.allocatedAs(
      {
        ...{ sid, pod, uid, pool, fence, wasExisting, isBeforeItsPod, allocatedAtMs },
        leaseUntilMs: leaseUntilMs - setBackMs,
      },
      before,
    );
  }

  async #call(sid: string, merchantId: string): Promise<void> {
    const { world } = this;
    const { history, traffic, time, agents } = world;
    let call: KnownCall;
    try {
      const got = await this.#allocate(sid, merchantId, traffic.next() < this.waiting);
      if (!got) return;
      call = got;
    } catch (error) {
      const refusals = ['no_pods', 'queue_full', 'wait_expired', 'merchant_limit'];
      const isRefused = error instanceof AppError && refusals.includes(error.code);
      if (isRefused) history.refused += 1;
      else history.failed += 1;
      history.note(`${sid} ${isRefused ? 'got no pod' : 'failed'}`);
      return;
    }
    if (traffic.next() < this.hangUps) return history.over(call, 'the caller hung up');
    await world.wait(100 + traffic.next() * 400);
    const agent = agents.all.get(call.pod);
    if (!agent?.isAlive || agent.uid !== call.uid || agent.startedAtMs >= call.allocatedAtMs) {
      history.over(call, 'no agent answers');
      await this.#release(call);
      return;
    }
    agent.serving.set(sid, call);
    call.isConnected = true;
    const endMs = time.nowMs + holdMs * (0.1 - Math.log(1 - traffic.next()));
    while (time.nowMs < endMs) {
      await world.wait(Math.min(endMs - time.nowMs, renewEveryMs));
      if (!agent.isAlive || agent.serving.get(sid) !== call) return;
      if (!agent.reports && !agent.isSilent) void this.#renew(call);
    }
    agents.hangUp(agent, sid, 'it ended');
    if (agent.isSilent) return;
    await this.#release(call);
    // Some releases are repeated much later, and some SIDs are used again.
    if (traffic.next() < 0.1) time.after(traffic.next() * 60_000, () => void this.#release(call));
    if (this.isTaking && traffic.next() < 0.1) void this.#call(sid, merchantId);
  }

  /** Promise 13: no later call gets before it. A merchant with a configuration may have got a queue of its own since. */
  #checkPlace(sid: string, merchantId: string, found: Waiting): void {
    const { history } = this.world;
    const last = this.waited.get(sid);
    if (!last) history.note(`${sid} waits, place ${found.position}`);
    this.waited.set(sid, { ...found, atMs: history.nowMs() });
    const isSame = last?.sinceMs === found.sinceMs && last.atMs > history.lossAtMs;
    if (isSame && ['', 'unknown'].includes(merchantId) && found.position > last.position)
      history.violated(`13: ${sid} was at place ${last.position}, and is at ${found.position} now`);
  }

  /** Half of those that hang up while they wait say so. */
  async #leave(sid: string): Promise<undefined> {
    const { world } = this;
    world.history.note(`${sid} hung up while it waited`);
    if (world.traffic.next() < 0.5) await world.askAny((calls) => calls.release(sid)).catch(() => undefined);
  }

  async #renew(call: KnownCall): Promise<void> {
    const { world } = this;
    const { nowMs: sentMs, setBackMs: setBackBefore } = world.store;
    try {
      const { leaseExpiresAtMs } = await world.askAny((calls) => calls.renew(call.sid, call.fence));
      // The store's clock may have been set back since.
      const leaseUntilMs = Math.min(sentMs + world.times.leaseTtlMs, leaseExpiresAtMs);
      world.history.renewed(call.sid, leaseUntilMs - (world.store.setBackMs - setBackBefore));
    } catch (error) {
      if (error instanceof AppError && error.code === 'call_not_found') world.history.unknown(call);
    }
  }

  async #release(call: KnownCall): Promise<void> {
    await this.world.askAny((calls) => calls.release(call.sid, call.fence)).catch(() => undefined);
  }
}
