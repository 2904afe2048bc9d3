/**
 * Turns the store's events into lines for people. It keeps what one event alone does not say: which call is on
 * which pod, since when, and whether a draining pod has just lost its last one. What the leader does about pods it
 * leaves out: the cluster itself tells that better, see narrator.ts.
 */
import type { StoreEvent } from '../calls/events.js';
import type { PoolId } from '../config/tiers.js';
import { inSeconds, type Line, type LineKind } from './lines.js';

interface LiveCall {
  pod: string;
  sinceMs: number;
}

export class Chronicle {
  readonly counts = { fallbacks: 0, recovered: 0, adopted: 0, drained: 0 };
  readonly #chainOf: (merchantId: string) => readonly PoolId[];
  readonly #live = new Map<string, LiveCall>();
  readonly #draining = new Set<string>();
  /** Calls that the store knows; `#live` also keeps what it has forgotten, for its age. */
  readonly #known = new Set<string>();

  constructor(chainOf: (merchantId: string) => readonly PoolId[]) {
    this.#chainOf = chainOf;
  }

  /** The store has lost everything. */
  forget(): void {
    this.#known.clear();
    this.#draining.clear();
  }

  knows(call: string): boolean {
    return this.#known.has(call);
  }

  tell(event: StoreEvent): Line[] {
    const { type, at, fields } = event;
    const { call = '', pod = '' } = fields;
    const line = (kind: LineKind, text: string, more: Partial<Line> = {}): Line => ({
      at,
      kind,
      ...(call ? { call } : {}),
      ...(pod ? { pod } : {}),
      text,
      ...more,
    });
    switch (type) {
      case 'call_allocated':
        return [this.#allocated(event, line)];
      case 'call_adopted':
        this.counts.adopted += 1;
        this.#known.add(call);
        this.#live.set(call, { pod, sinceMs: this.#live.get(call)?.sinceMs ?? millis(event) });
        return [line('adopted', 'its agent told a forgetful router')];
      case 'call_released':
        return [
          line('released', `${this.#lasted(event)}${fields.pool ? '' : ', takes no new call'}`),
          ...this.#ended(event, line),
        ];
      case 'call_recovered': {
        this.counts.recovered += 1;
        const text = `zombie: ${fields.reason}; its pod is free again (${this.#lasted(event)})`;
        return [line('recovered', text), ...this.#ended(event, line)];
      }
      case 'call_lost':
        return [line('lost', fields.reason ?? ''), ...this.#ended(event, line)];
      case 'pod_draining': {
        // Who waits for the end of a drain asks again and again.
        if (this.#draining.has(pod)) return [];
        this.#draining.add(pod);
        const calls = Number(fields.calls);
        if (calls === 0) return [line('draining', 'no new calls'), this.#drained(line)];
        return [line('draining', `no new calls; ${calls === 1 ? 'its call goes' : `${calls} calls go`} on`)];
      }
      case 'pod_undrained':
        this.#draining.delete(pod);
        return [line('undrained', 'takes calls again')];
      case 'pod_recovered':
        return [
          line(
            'recovered',
            `the sweep found it idle and put it back${this.#draining.delete(pod) ? ': its drain is over' : ''}`,
          ),
        ];
      case 'no_pods':
        return [line('no pods', `nothing free in ${namesOf((fields.chain ?? '').split(' '))}`)];
      case 'merchant_changed':
        return [line('changed', `merchant ${fields.merchant}: ${fields.config || 'deleted'}`)];
      case 'tiers_changed':
        return [line('changed', `tier configuration, version ${fields.version}`)];
      case 'pod_removed':
        this.#draining.delete(pod);
        return [];
      case 'leader_elected':
      case 'pod_registered':
      case 'pod_suspended':
      case 'pod_resumed':
        return [];
      default:
        return [line('other', '', { label: type.replace(/^(pod|call)_/, '') })];
    }
  }

  #allocated(event: StoreEvent, line: MakeLine): Line {
    const { call = '', pod = '', pool = '', merchant = '' } = event.fields;
    this.#live.set(call, { pod, sinceMs: millis(event) });
    this.#known.add(call);
    const chain = this.#chainOf(merchant);
    const skipped = chain.slice(0, Math.max(0, chain.indexOf(pool as PoolId)));
    const who = merchant ? ` (${merchant})` : '';
    if (skipped.length > 0) {
      this.counts.fallbacks += 1;
      const ownPool = skipped.some((step) => step.startsWith('merchant:'));
      return line('fallback', `nothing free in ${namesOf(skipped)}${ownPool ? '' : who}`);
    }
    if (pool.startsWith('merchant:')) return line('merchant', namesOf([pool]));
    return line('allocated', `${shortName(pool)}${who}`);
  }

  #ended({ fields: { call = '', pod = '' } }: StoreEvent, line: MakeLine): Line[] {
    this.#live.delete(call);
    this.#known.delete(call);
    const idle = ![...this.#live.values()].some((one) => one.pod === pod);
    return idle && this.#draining.has(pod) ? [this.#drained(line)] : [];
  }

  #drained(line: MakeLine): Line {
    this.counts.drained += 1;
    return line('drained', 'its last call has ended: safe to stop', { call: '' });
  }

  #lasted(event: StoreEvent): string {
    const since = this.#live.get(event.fields.call ?? '')?.sinceMs;
    return since === undefined ? 'some time' : inSeconds(millis(event) - since);
  }
}

type MakeLine = (kind: LineKind, text: string, more?: Partial<Line>) => Line;

function millis(event: StoreEvent): number {
  return Number(event.id.split('-')[0]);
}

/** `gold` for `pool:gold`, `acme` for `merchant:acme`. */
export function shortName(pool: string): string {
  return pool.slice(pool.indexOf(':') + 1);
}

function namesOf(pools: readonly string[]): string {
  return pools
    .map((pool) => (pool.startsWith('merchant:') ? `${shortName(pool)}’s own pool` : shortName(pool)))
    .join(', ');
}
