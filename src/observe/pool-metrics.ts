/**
 * The metrics by pool and by chain, with a bounded number of series.
 *
 * Tiers are at most 200. Merchant pools come and go with labels and configuration, so only 200 of them have series of their
 * own, and the others are summed as `merchant:*`: of gauges the first 200 by name, which are the same on every replica; of
 * counters the first 200 that this process met. The series of a pool that no longer exists is removed: a gauge with the
 * next scrape, a counter once it has not changed for 60 scrapes, so that Prometheus has seen its last value and the alerts
 * that look back 15 minutes have, too. A pool that exists again starts at 0.
 */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { PoolCounts, Snapshot } from '../calls/store/replies.js';
import { type PoolId, tierNameOf } from '../calls/tiers.js';

/** Merchant pools, and chains, that have series of their own. */
export const mostSeries = 200;
const scrapesKept = 60;
const otherMerchants = 'merchant:*';
const otherChains = 'other';

/** What callers use of a counter; the labels are bounded on the way. */
export interface Counting<L> {
  inc(labels: L, value?: number): void;
}

export class PoolMetrics {
  readonly allocations: Counting<{ pool: string; status: string }>;
  readonly releases: Counting<{ pool: string; status: string }>;
  readonly noPods: Counting<{ chain: string }>;
  readonly unmetDemand: Counting<{ tier: string }>;
  /** What removed series had counted, by metric and status: the history counts since the start of the process. */
  readonly removed = {
    smart_router_allocations_total: new Map<string, number>(),
    smart_router_releases_total: new Map<string, number>(),
  };
  readonly #allocations: Counter<'pool' | 'status'>;
  readonly #releases: Counter<'pool' | 'status'>;
  readonly #noPods: Counter<'chain'>;
  readonly #unmetDemand: Counter<'tier'>;
  readonly #gauges: [gauge: Gauge<'tier'>, of: (pool: PoolCounts) => number][];
  #merchants = new Set<string>();
  #chains = new Set<string>();
  /** Series of pools that no longer exist: their value, and for how many scrapes it has not changed. */
  readonly #idle = new Map<string, { value: number; scrapes: number }>();

  constructor(registry: Registry) {
    const counter = <L extends string>(name: string, help: string, labelNames: L[]) =>
      new Counter({ name: `smart_router_${name}`, help, labelNames, registers: [registry] });
    this.#allocations = counter(
      'allocations_total',
      'Allocations by pool and outcome (success, existing, no_pods, error)',
      ['pool', 'status'],
    );
    this.#releases = counter(
      'releases_total',
      'Releases by pool and outcome (success, draining, not_found, stale_fence, caller_gone, error)',
      ['pool', 'status'],
    );
    this.#noPods = counter('no_pods_total', 'Calls that got no pod, by the chain that was tried', ['chain']);
    this.#unmetDemand = counter(
      'pool_unmet_demand_total',
      'Calls that a pool could not take, by tier: it was full and the call went on',
      ['tier'],
    );
    this.allocations = {
      inc: ({ pool, status }, value) => this.#allocations.inc({ pool: this.#label(pool), status }, value),
    };
    this.releases = {
      inc: ({ pool, status }, value) => this.#releases.inc({ pool: this.#label(pool), status }, value),
    };
    this.noPods = { inc: ({ chain }, value) => this.#noPods.inc({ chain: this.#chainLabel(chain) }, value) };
    this.unmetDemand = {
      inc: ({ tier }, value) => this.#unmetDemand.inc({ tier: this.#label(tier) }, value),
    };
    const gauge = (name: string, help: string) =>
      new Gauge({ name: `smart_router_pool_${name}`, help, labelNames: ['tier'], registers: [registry] });
    this.#gauges = [
      [gauge('available_pods', 'Pods that could take a call now'), ({ available }) => available],
      [gauge('assigned_pods', 'Pods of the pool'), ({ assigned }) => assigned],
      [
        gauge('capacity_calls', 'Calls that the pods of the pool could have at once'),
        ({ capacity }) => capacity,
      ],
      [gauge('active_calls', 'Live calls of the pool'), ({ activeCalls }) => activeCalls],
      [
        gauge('stranded_pods', 'Pods of the pool that have no call and cannot get one'),
        ({ stranded }) => stranded,
      ],
    ];
  }

  /** Called before every scrape; undefined: the store did not answer, and nobody knows which pools there are. */
  async render(snapshot: Snapshot | undefined): Promise<void> {
    if (snapshot) await this.#removeGone(snapshot.pools.map(({ pool }) => pool));
    // From here on in one go: of two scrapes at once, neither adds to the sums of the other.
    for (const [gauge] of this.#gauges) gauge.reset();
    let merchants = 0;
    for (const pool of snapshot?.pools ?? []) {
      const isMerchant = pool.pool.startsWith('merchant:');
      if (isMerchant) merchants += 1;
      const tier = isMerchant && merchants > mostSeries ? otherMerchants : tierNameOf(pool.pool);
      // Of a pool that cannot be read 0 would be a wrong number.
      if (pool.unreadableKey === '') for (const [gauge, of] of this.#gauges) gauge.inc({ tier }, of(pool));
      this.unmetDemand.inc({ tier }, 0);
    }
  }

  /** Both labels name a merchant pool as `merchant:acme`, and a tier is never in the way. */
  #label(name: string): string {
    if (!name.startsWith('merchant:') || name === otherMerchants) return name;
    if (this.#merchants.size < mostSeries) this.#merchants.add(name);
    return this.#merchants.has(name) ? name : otherMerchants;
  }

  #chainLabel(chain: string): string {
    const label = [...new Set(chain.split(' ').map((id) => this.#label(id)))].join(' ');
    if (this.#chains.size < mostSeries) this.#chains.add(label);
    return this.#chains.has(label) ? label : otherChains;
  }

  async #removeGone(ids: readonly PoolId[]): Promise<void> {
    const known = new Set<string>(['', ...ids, ...ids.map(tierNameOf), otherMerchants, otherChains]);
    const merchants = new Set<string>();
    const chains = new Set<string>();
    for (const counter of [this.#allocations, this.#releases, this.#unmetDemand, this.#noPods]) {
      const { name, values } = await counter.get();
      for (const { labels, value } of values as { labels: Record<string, string>; value: number }[]) {
        const { pool, tier, chain } = labels;
        const names = (pool ?? tier ?? chain ?? '').split(' ');
        const key = `${name} ${JSON.stringify(labels)}`;
        if (names.every((one) => known.has(one))) this.#idle.delete(key);
        else if (this.#isOver(key, value)) {
          (counter as Counter).remove(labels);
          const removed = this.removed[name as keyof typeof this.removed] as Map<string, number> | undefined;
          removed?.set(labels.status ?? '', (removed.get(labels.status ?? '') ?? 0) + value);
          continue;
        }
        for (const one of names) if (one.startsWith('merchant:')) merchants.add(one);
        if (chain !== undefined) chains.add(chain);
      }
    }
    merchants.delete(otherMerchants);
    this.#merchants = merchants;
    this.#chains = chains;
  }

  /** Whether a series of a pool that is gone has not changed for long enough. */
  #isOver(key: string, value: number): boolean {
    const idle = this.#idle.get(key);
    const scrapes = idle?.value === value ? idle.scrapes + 1 : 1;
    if (scrapes <= scrapesKept) this.#idle.set(key, { value, scrapes });
    else this.#idle.delete(key);
    return scrapes > scrapesKept;
  }
}
