/**
 * The metrics by pool and by chain, with a bounded number of series.
 *
 * There are at most 200 tiers. Merchant pools are created by labels and configuration, so only 200 of them have their own
 * series; the others are summed as `merchant:*`. For gauges these are the first 200 by name, the same on every replica;
 * for counters the first 200 that this process counted. The series of a deleted pool is removed: a gauge at the next
 * scrape, a counter after 60 scrapes without a change, so that Prometheus has its last value and alerts with a range of
 * 15 minutes have seen it. A pool that is created again starts at 0.
 */
import { Counter, Gauge, type Registry } from 'prom-client';
import { type PoolId, tierNameOf } from '../config/tiers.js';
import type { PoolCounts, Snapshot } from './store/replies.js';

/** Merchant pools, and chains, with their own series. */
export const maxSeries = 200;
const scrapesKept = 60;
const otherMerchants = 'merchant:*';
const otherChains = 'other';

/** A counter with bounded labels. */
export interface BoundedCounter<L> {
  inc(labels: L, value?: number): void;
}

export class PoolMetrics {
  readonly allocations: BoundedCounter<{ pool: string; status: string }>;
  readonly releases: BoundedCounter<{ pool: string; status: string }>;
  readonly noPods: BoundedCounter<{ chain: string }>;
  readonly unmetDemand: BoundedCounter<{ tier: string }>;
  /** The counts of removed series by metric and status: the history counts from the start of the process. */
  readonly removed = {
    smart_router_allocations_total: new Map<string, number>(),
    smart_router_releases_total: new Map<string, number>(),
  };
  readonly #counters: Counter<'pool' | 'tier' | 'chain' | 'status'>[];
  readonly #gauges: [gauge: Gauge<'tier'>, of: keyof PoolCounts & string][];
  #merchants = new Set<string>();
  #chains = new Set<string>();
  /** Series of deleted pools: their value, and the number of scrapes without a change. */
  readonly #idle = new Map<string, { value: number; scrapes: number }>();

  constructor(registry: Registry) {
    const counter = <L extends string>(name: string, help: string, labelNames: L[]) =>
      new Counter({ name: `smart_router_${name}`, help, labelNames, registers: [registry] });
    const allocations = counter(
      'allocations_total',
      'Allocations by pool and outcome (success, existing, no_pods, error)',
      ['pool', 'status'],
    );
    const releases = counter(
      'releases_total',
      'Releases by pool and outcome (success, draining, not_found, stale_fence, caller_gone, error)',
      ['pool', 'status'],
    );
    const noPods = counter('no_pods_total', 'Calls that got no pod by chain', ['chain']);
    const unmetDemand = counter(
      'pool_unmet_demand_total',
      'Calls that a full pool could not take, by tier: they went to the next pool of their chain',
      ['tier'],
    );
    this.#counters = [allocations, releases, noPods, unmetDemand] as Counter<
      'pool' | 'tier' | 'chain' | 'status'
    >[];
    this.allocations = {
      inc: ({ pool, status }, value) => allocations.inc({ pool: this.#label(pool), status }, value),
    };
    this.releases = {
      inc: ({ pool, status }, value) => releases.inc({ pool: this.#label(pool), status }, value),
    };
    this.noPods = { inc: ({ chain }, value) => noPods.inc({ chain: this.#chainLabel(chain) }, value) };
    this.unmetDemand = { inc: ({ tier }, value) => unmetDemand.inc({ tier: this.#label(tier) }, value) };
    const gauge = (name: string, help: string) =>
      new Gauge({
        name: `smart_router_pool_${name}`,
        help,
        labelNames: ['tier'],
        aggregator: 'first',
        registers: [registry],
      });
    this.#gauges = [
      [gauge('available_pods', 'Pods that can take a call now'), 'available'],
      [gauge('assigned_pods', 'Pods of the pool'), 'assigned'],
      [gauge('capacity_calls', 'Calls that the pods of the pool can have at once'), 'capacity'],
      [gauge('active_calls', 'Live calls of the pool'), 'activeCalls'],
      [gauge('stranded_pods', 'Pods of the pool that have no call and cannot get one'), 'stranded'],
    ];
  }

  /** Runs before every scrape; undefined: the store does not respond, and the pools are unknown. */
  async render(snapshot: Snapshot | undefined): Promise<void> {
    if (snapshot) await this.#removeDeleted(snapshot.pools.map(({ pool }) => pool));
    // Without an await from here on: of two scrapes at once, neither adds to the sums of the other.
    for (const [gauge] of this.#gauges) gauge.reset();
    let merchants = 0;
    for (const pool of snapshot?.pools ?? []) {
      const isMerchant = pool.pool.startsWith('merchant:');
      if (isMerchant) merchants += 1;
      const tier = isMerchant && merchants > maxSeries ? otherMerchants : tierNameOf(pool.pool);
      // For an unreadable pool 0 would be wrong.
      if (pool.unreadableKey === '')
        for (const [gauge, name] of this.#gauges) gauge.inc({ tier }, Number(pool[name]));
      this.unmetDemand.inc({ tier }, 0);
    }
  }

  /** Both labels name a merchant pool as `merchant:acme`; tiers are not limited. */
  #label(name: string): string {
    if (!name.startsWith('merchant:') || name === otherMerchants) return name;
    if (this.#merchants.size < maxSeries) this.#merchants.add(name);
    return this.#merchants.has(name) ? name : otherMerchants;
  }

  #chainLabel(chain: string): string {
    const label = [...new Set(chain.split(' ').map((id) => this.#label(id)))].join(' ');
    if (this.#chains.size < maxSeries) this.#chains.add(label);
    return this.#chains.has(label) ? label : otherChains;
  }

  async #removeDeleted(ids: readonly PoolId[]): Promise<void> {
    const existing = new Set<string>(['', ...ids, ...ids.map(tierNameOf), otherMerchants, otherChains]);
    const merchants = new Set<string>();
    const chains = new Set<string>();
    for (const counter of this.#counters) {
      const { name, values } = await counter.get();
      for (const { labels, value } of values as { labels: Record<string, string>; value: number }[]) {
        const { pool, tier, chain } = labels;
        const names = (pool ?? tier ?? chain ?? '').split(' ');
        const key = `${name} ${JSON.stringify(labels)}`;
        if (names.every((one) => existing.has(one))) this.#idle.delete(key);
        else if (this.#isIdle(key, value)) {
          counter.remove(labels);
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

  /** Whether the series of a deleted pool has not changed for long enough. */
  #isIdle(key: string, value: number): boolean {
    const idle = this.#idle.get(key);
    const scrapes = idle?.value === value ? idle.scrapes + 1 : 1;
    if (scrapes <= scrapesKept) this.#idle.set(key, { value, scrapes });
    else this.#idle.delete(key);
    return scrapes > scrapesKept;
  }
}
