/** Names and numbers as the console shows them. */
import type { Pod } from './types.js';

export const collator = new Intl.Collator('en', { numeric: true });

const whole = new Intl.NumberFormat('en-GB');
export const count = (n: number | null | undefined) =>
  n === null || n === undefined ? '–' : whole.format(n);

export const plural = (n: number, word: string) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

/** Three significant digits: 0, 0.42, 3.1, 128. */
export function figure(n: number | null | undefined): string {
  if (n === null || n === undefined || Number.isNaN(n)) return '–';
  if (n === 0) return '0';
  if (n < 0.005) return '<0.01';
  if (n < 1) return n.toFixed(2);
  if (n < 100) return n.toFixed(1).replace(/\.0$/, '');
  return whole.format(Math.round(n));
}

export const percent = (share: number | null) =>
  share === null
    ? '–'
    : share === 1 || share === 0
      ? `${share * 100} %`
      : `${(share * 100).toFixed(share > 0.99 ? 2 : 1)} %`;

/** `gold` for `pool:gold`, `acme` for `merchant:acme`. */
export const poolName = (pool: string) =>
  pool.startsWith('merchant:') ? pool.slice(9) : pool.replace(/^pool:/, '');
export const isMerchantPool = (pool: string) => pool.startsWith('merchant:');
/** `gold` for `pool:gold`, as in pods and the status; `merchant:acme` is unchanged. */
export const tierOf = (pool: string) => pool.replace(/^pool:/, '');

/** Whether any of the texts contains the words, in any case; everything contains no words. */
export function contains(words: string, ...texts: (string | undefined)[]): boolean {
  const wanted = words.trim().toLowerCase();
  return texts.some((text) => text?.toLowerCase().includes(wanted));
}

/** A call waits because its merchant is at its limit, not for want of a pod. */
export const isLimit = (saw: string | undefined) => saw?.startsWith('max_calls') ?? false;
export const waitReasons: Record<string, string> = {
  no_pods: 'No free pod',
  merchant_limit: 'Merchant at its limit',
};

export const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
export const spaced = (code: string) => code.replaceAll('_', ' ');

export type PodState = 'free' | 'busy' | 'draining' | 'blocked';
export const podStates: readonly PodState[] = ['free', 'busy', 'draining', 'blocked'];
export const stateLabels: Record<PodState, string> = {
  free: 'Free',
  busy: 'Busy',
  draining: 'Draining',
  blocked: 'Not taking calls',
};

export function stateOf({ blocked_by, leases }: Pod): PodState {
  if (blocked_by === 'draining' || blocked_by === 'terminating') return 'draining';
  if (blocked_by !== null) return 'blocked';
  return leases.length > 0 ? 'busy' : 'free';
}

/** The state of a pod, or the reason why it is blocked. */
export function stateText(pod: Pod): string {
  const state = stateOf(pod);
  if (state === 'blocked') return reasons[pod.blocked_by ?? ''] ?? spaced(pod.blocked_by ?? '');
  return pod.blocked_by === 'terminating' ? 'Terminating' : stateLabels[state];
}

const reasons: Record<string, string> = {
  not_ready: 'Not ready',
  awaiting_report: 'Awaiting report',
  flapping: 'Set back: calls fail',
  unconfirmed: 'Missing, unconfirmed',
  unreadable: 'Unreadable key',
};

/** In the order of the chain; other names follow, sorted. */
export function inChainOrder(names: readonly string[], chain: readonly string[]): string[] {
  const steps = chain.map(tierOf);
  const placeOf = (name: string) => (steps.includes(name) ? steps.indexOf(name) : steps.length);
  return names.toSorted((a, b) => placeOf(a) - placeOf(b) || collator.compare(a, b));
}

export type Tone = 'good' | 'plain' | 'warn' | 'bad';
/** Every type of event that the scripts of the router write; a test compares. The name follows from the type by default. */
const events: Record<string, readonly [tone: Tone, name?: string]> = {
  call_allocated: ['good'],
  call_waiting: ['warn', 'Waiting for a pod'],
  call_assigned: ['good', 'Pod handed over'],
  wait_abandoned: ['bad'],
  wait_expired: ['bad'],
  call_released: ['plain'],
  call_adopted: ['good'],
  call_imported: ['plain'],
  call_recovered: ['warn'],
  call_lost: ['bad'],
  no_pods: ['bad', 'No pod free'],
  pod_registered: ['good'],
  pod_recovered: ['warn'],
  pod_removed: ['warn'],
  pod_suspended: ['warn'],
  pod_resumed: ['good'],
  pod_draining: ['warn'],
  pod_undrained: ['good'],
  leader_elected: ['warn', 'New leader'],
  leases_extended: ['warn'],
  generation_began: ['warn'],
  removals_confirmed: ['warn'],
  tiers_changed: ['plain'],
  merchant_changed: ['plain'],
};
export const eventTypes = Object.keys(events);
export const toneOf = (type: string): Tone => events[type]?.[0] ?? 'plain';
/** `call_allocated` to `Call allocated`. */
export const eventName = (type: string) => events[type]?.[1] ?? capital(spaced(type));
