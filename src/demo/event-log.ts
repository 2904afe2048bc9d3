/**
 * Turns the events of the store into lines. It keeps what one event alone does not say: where a call is, since when,
 * and whether a draining pod has just lost its last call. Events about pods that agents.ts logs are left out.
 */
import type { StoreEvent } from '../calls/events.js';
import type { PoolId } from '../config/tiers.js';
import { count, inSeconds, type Line, type LineKind } from './lines.js';
import { chainOf } from './setup.js';

type MakeLine = (kind: LineKind, text: string, more?: Partial<Line>) => Line;

export class EventLog {
  readonly counts = { fallbacks: 0, recovered: 0, adopted: 0 };
  /** Calls that a flush deleted stay, for their age. */
  readonly #live = new Map<string, { pod: string; sinceMs: number; isInStore: boolean }>();
  readonly #draining = new Set<string>();

  storeFlushed(): void {
    for (const call of this.#live.values()) call.isInStore = false;
    this.#draining.clear();
  }

  isInStore(call: string): boolean {
    return this.#live.get(call)?.isInStore ?? false;
  }

  linesOf(event: StoreEvent): Line[] {
    const { type, at, fields } = event;
    const { call = '', pod = '' } = fields;
    const line: MakeLine = (kind, text, more = {}) => ({ at, kind, call, pod, text, ...more });
    switch (type) {
      case 'call_allocated':
        return [this.#allocated(event, line)];
      case 'call_waiting':
        return [line('waiting', `all busy: on hold, place ${fields.position} in the queue`)];
      case 'call_assigned':
        this.#begin(event);
        return [line('assigned', `${nameOf(fields.pool ?? '')}, after ${waitOf(event)} on hold`)];
      case 'wait_abandoned':
        return [line('hung up', `after ${waitOf(event)} on hold`)];
      case 'wait_expired':
        return [line('expired', `no agent within ${waitOf(event)}`)];
      case 'call_adopted':
        this.counts.adopted += 1;
        this.#begin(event, this.#live.get(call)?.sinceMs);
        return [line('adopted', 'restored from the report of its agent')];
      case 'call_released': {
        const blocked = fields.pool ? '' : ', pod takes no new calls';
        return [line('released', `${this.#ageOf(event)}${blocked}`), ...this.#ended(event, line)];
      }
      case 'call_recovered': {
        this.counts.recovered += 1;
        const text = `zombie: ${fields.reason}; pod freed (${this.#ageOf(event)})`;
        return [line('recovered', text), ...this.#ended(event, line)];
      }
      case 'call_lost':
        return [line('lost', fields.reason ?? ''), ...this.#ended(event, line)];
      case 'pod_draining': {
        // An agent that waits for the end of its drain repeats the request.
        if (this.#draining.has(pod)) return [];
        this.#draining.add(pod);
        const calls = Number(fields.calls);
        if (calls === 0) return [line('draining', 'no new calls'), drained(line)];
        return [line('draining', `no new calls; ${count(calls, 'call continues', 'calls continue')}`)];
      }
      case 'pod_undrained':
        this.#draining.delete(pod);
        return [line('undrained', 'accepts calls again')];
      case 'pod_recovered': {
        const drain = this.#draining.delete(pod) ? '; drain ended' : '';
        return [line('recovered', `idle pod returned to its pool by the sweep${drain}`)];
      }
      case 'no_pods':
        return [line('no pods', `no free pod in ${namesOf((fields.chain ?? '').split(' '))}`)];
      case 'leases_extended': {
        const leases = count(Number(fields.calls), 'lease', 'leases');
        return [
          line('other', `${leases} extended: no router reached Redis for ${fields.gap_seconds} s`, {
            label: 'leases',
          }),
        ];
      }
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
        return [line('other', '', { label: type.replace(/^(pod|call)_/, '').replaceAll('_', ' ') })];
    }
  }

  #begin(event: StoreEvent, sinceMs = timeOf(event)): void {
    const { call = '', pod = '' } = event.fields;
    this.#live.set(call, { pod, sinceMs, isInStore: true });
  }

  #allocated(event: StoreEvent, line: MakeLine): Line {
    const { pool = '', merchant = '' } = event.fields;
    this.#begin(event);
    const chain = chainOf(merchant);
    const skipped = chain.slice(0, Math.max(0, chain.indexOf(pool as PoolId)));
    const forMerchant = merchant ? ` (${merchant})` : '';
    if (skipped.length > 0) {
      this.counts.fallbacks += 1;
      const isOwnPool = skipped.some((step) => step.startsWith('merchant:'));
      return line('fallback', `no free pod in ${namesOf(skipped)}${isOwnPool ? '' : forMerchant}`);
    }
    if (pool.startsWith('merchant:')) return line('merchant', namesOf([pool]));
    return line('allocated', `${nameOf(pool)}${forMerchant}`);
  }

  #ended({ fields: { call = '', pod = '' } }: StoreEvent, line: MakeLine): Line[] {
    this.#live.delete(call);
    const isIdle = ![...this.#live.values()].some((one) => one.pod === pod);
    return isIdle && this.#draining.has(pod) ? [drained(line)] : [];
  }

  #ageOf(event: StoreEvent): string {
    const sinceMs = this.#live.get(event.fields.call ?? '')?.sinceMs;
    return sinceMs === undefined ? 'unknown age' : inSeconds(timeOf(event) - sinceMs);
  }
}

const drained = (line: MakeLine) => line('drained', 'no calls left: safe to stop', { call: '' });

const waitOf = ({ fields: { waited_ms } }: StoreEvent) => inSeconds(Number(waited_ms ?? 0));

const timeOf = (event: StoreEvent) => Number(event.id.split('-')[0]);

/** `gold` for `pool:gold`, `acme` for `merchant:acme`. */
const nameOf = (pool: string) => pool.slice(pool.indexOf(':') + 1);

const namesOf = (pools: readonly string[]) =>
  pools
    .map((pool) => (pool.startsWith('merchant:') ? `${nameOf(pool)}’s own pool` : nameOf(pool)))
    .join(', ');
