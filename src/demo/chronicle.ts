/**
 * Turns the store's events into lines for people. It keeps what one event alone does not say: which call is on
 * which pod, since when, and whether a draining pod has just lost its last one.
 */
import type { StoreEvent } from '../calls/events.js';
import type { PoolId } from '../calls/tiers.js';

export type LineKind =
  | 'allocated'
  | 'merchant'
  | 'fallback'
  | 'released'
  | 'draining'
  | 'drained'
  | 'undrained'
  | 'recovered'
  | 'no pods'
  | 'lost'
  | 'changed'
  | 'other';

export interface Line {
  at: string;
  kind: LineKind;
  /** Beside the kind's own name, for kinds of which there are several. */
  label?: string;
  call?: string;
  pod?: string;
  text: string;
}

interface LiveCall {
  pod: string;
  sinceMs: number;
}

export class Chronicle {
  readonly counts = { calls: 0, fallbacks: 0, recovered: 0, drained: 0, refused: 0 };
  readonly #chainOf: (merchantId: string) => readonly PoolId[];
  readonly #live = new Map<string, LiveCall>();
  readonly #draining = new Set<string>();

  constructor(chainOf: (merchantId: string) => readonly PoolId[]) {
    this.#chainOf = chainOf;
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
        this.#live.set(call, { pod, sinceMs: millis(event) });
        return [line('other', 'its agent told a forgetful router', { label: 'adopted' })];
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
        this.#draining.add(pod);
        const calls = Number(fields.calls);
        if (calls === 0) return [line('draining', 'no new calls'), this.#drained(line)];
        return [line('draining', `no new calls; ${calls === 1 ? 'its call goes' : `${calls} calls go`} on`)];
      }
      case 'pod_undrained':
        this.#draining.delete(pod);
        return [line('undrained', 'takes calls again')];
      case 'pod_recovered':
        this.#draining.delete(pod);
        return [line('recovered', 'the sweep found it idle and put it back: its drain is over')];
      case 'no_pods':
        this.counts.refused += 1;
        return [line('no pods', `nothing free in ${namesOf((fields.chain ?? '').split(' '))}`)];
      case 'merchant_changed':
        return [line('changed', `merchant ${fields.merchant}: ${fields.config || 'deleted'}`)];
      case 'tiers_changed':
        return [line('changed', `tier configuration, version ${fields.version}`)];
      default:
        return [line('other', '', { label: type.replace(/^(pod|call)_/, '') })];
    }
  }

  #allocated(event: StoreEvent, line: MakeLine): Line {
    const { call = '', pod = '', pool = '', merchant = '' } = event.fields;
    this.#live.set(call, { pod, sinceMs: millis(event) });
    this.counts.calls += 1;
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
    const idle = ![...this.#live.values()].some((one) => one.pod === pod);
    return idle && this.#draining.has(pod) ? [this.#drained(line)] : [];
  }

  #drained(line: MakeLine): Line {
    this.counts.drained += 1;
    return line('drained', 'its last call has ended: safe to stop', { call: '' });
  }

  #lasted(event: StoreEvent): string {
    const since = this.#live.get(event.fields.call ?? '')?.sinceMs;
    return since === undefined ? 'some time' : `${((millis(event) - since) / 1000).toFixed(1)} s`;
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
