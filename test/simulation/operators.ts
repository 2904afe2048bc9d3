/** What operators do all day: drains, for a moment each; merchants; in some worlds other tiers. */

import { checkKeys } from './checks.js';
import { merchantIds, merchantVariants, tierVariants } from './configuration.js';
import type { Act, World } from './world.js';

export class Operators {
  constructor(
    private readonly world: World,
    /** A limit may be lower today than it was when the calls were given. */
    readonly changesTiers: boolean,
  ) {}

  start(): void {
    this.#nextDrain();
    this.#nextMerchant();
    if (this.changesTiers) this.#nextTiers();
  }

  #nextDrain(): void {
    const { time, traffic, callers, agents } = this.world;
    time.after(traffic.next() * 80_000, () => {
      if (!callers.isTaking) return;
      const name = traffic.pick([...agents.all.keys()]);
      void this.drain(name);
      time.after(traffic.next() * 15_000, () => void this.undrain(name));
      this.#nextDrain();
    });
  }

  async drain(name: string): Promise<void> {
    const { world } = this;
    const { history, agents, store } = world;
    const uid = agents.all.get(name)?.uid ?? '';
    const { atMs } = history.before();
    const isBeforeItsPod = agents.isBeforeItsPod(name, store.nowMs);
    await world
      .askAny((calls) => calls.drain(name, 0))
      .then(({ untilMs }) => {
        if (!isBeforeItsPod) history.drained(name, uid, atMs, untilMs);
        if (world.isLookedAt) checkKeys(world);
      })
      .catch(() => undefined);
  }

  async undrain(name: string): Promise<void> {
    const { history } = this.world;
    history.undrained(name);
    await this.world
      .askAny((calls) => {
        // Unlike src/http, a paused router here still runs the request when it resumes.
        history.undrained(name);
        return calls.undrain(name);
      })
      .catch(() => undefined);
  }

  #nextMerchant(): void {
    this.#later(60_000, () => {
      const { traffic } = this.world;
      const id = traffic.pick(merchantIds.slice(2, 4));
      const config = traffic.next() < 0.2 ? undefined : traffic.pick(merchantVariants);
      this.#try(`merchant ${id}: ${JSON.stringify(config) ?? 'deleted'}`, (_, settings) =>
        config ? settings.setMerchant(id, config, 'operator') : settings.deleteMerchant(id, 'operator'),
      );
      this.#nextMerchant();
    });
  }

  #nextTiers(): void {
    this.#later(80_000, () => {
      const variant = Math.floor(this.world.traffic.next() * tierVariants.length);
      // Half of them name the version that they have read: the others overwrite what came between.
      const isCareful = this.world.traffic.next() < 0.5;
      this.#try(`tiers: variant ${variant}`, (_, settings) =>
        settings.replaceTiers(
          tierVariants[variant],
          'operator',
          isCareful ? settings.tierVersion : undefined,
        ),
      );
      this.#nextTiers();
    });
  }

  #try(what: string, act: Act<unknown>): void {
    const { history } = this.world;
    this.world.askAny(act).then(
      () => history.note(what),
      (error: Error) => history.note(`${what}: ${error.message}`),
    );
  }

  #later(maxMs: number, act: () => void): void {
    this.world.time.after(this.world.traffic.next() * maxMs, () => {
      if (!this.world.isHealed) act();
    });
  }
}
