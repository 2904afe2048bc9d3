/** Applies one event to the known pods and calls. Idempotent; the next event or read corrects a late one. */

import { isLimit, tierOf } from '../labels';
import type { Call, Pod, RouterEvent, WaitingCall } from '../types';

export interface Fleet {
  pods: Map<string, Pod>;
  calls: Map<string, Call>;
  waiting: Map<string, WaitingCall>;
  /** The duration of a lease, derived from the calls that were read; 0 while unknown. */
  leaseMs: number;
}

/** Replaces pods and calls instead of changing them, so that a comparison by identity sees the change. */
export function applyEvent(fleet: Fleet, event: RouterEvent): void {
  changes[event.type]?.(fleet, event);
}

type Change = (fleet: Fleet, event: RouterEvent) => void;
const blockedBy =
  (reason: (event: RouterEvent) => Partial<Pod>): Change =>
  (fleet, event) =>
    changePod(fleet, event.pod ?? '', reason(event));

const changes: Record<string, Change | undefined> = {
  call_waiting: beginWait,
  wait_abandoned: endWait,
  wait_expired: endWait,
  call_allocated: beginCall,
  call_assigned: beginCall,
  call_adopted: beginCall,
  call_imported: beginCall,
  call_released: endCall,
  call_recovered: endCall,
  call_lost: endCall,
  pod_registered: (fleet, { pod = '', pool = '' }) => changePod(fleet, pod, { tier: tierOf(pool) }, true),
  pod_removed: (fleet, { pod = '' }) => {
    for (const lease of fleet.pods.get(pod)?.leases ?? []) fleet.calls.delete(lease.call_sid);
    fleet.pods.delete(pod);
  },
  pod_suspended: blockedBy(({ reason = 'not_ready' }) => ({ blocked_by: reason })),
  pod_resumed: blockedBy(() => ({ blocked_by: null })),
  pod_draining: blockedBy(({ until }) => ({ blocked_by: 'draining', draining_until: untilOf(until) })),
  pod_undrained: blockedBy(() => ({ blocked_by: null, draining_until: null })),
};

/** Its place is that of its arrival until the next read. */
function beginWait(fleet: Fleet, event: RouterEvent): void {
  const { call: sid = '', at } = event;
  if (fleet.waiting.has(sid)) return;
  fleet.waiting.set(sid, {
    call_sid: sid,
    merchant_id: event.merchant ?? '',
    provider: '',
    flow: '',
    template: '',
    position: Number(event.position ?? 1),
    waiting_since: at,
    wait_expires_at: '',
    reason: isLimit(event.saw) ? 'merchant_limit' : 'no_pods',
    saw: event.saw ?? '',
  });
}

function endWait(fleet: Fleet, { call = '' }: RouterEvent): void {
  fleet.waiting.delete(call);
}

function beginCall(fleet: Fleet, event: RouterEvent): void {
  const { call: sid = '', pod: podName = '', at } = event;
  endWait(fleet, event);
  const known = fleet.calls.get(sid);
  const isKnown = known !== undefined && String(known.fence) === event.fence;
  const expires = fleet.leaseMs > 0 ? new Date(Date.parse(at) + fleet.leaseMs).toISOString() : null;
  if (known && !isKnown) endCall(fleet, { call: sid, pod: known.pod_name });
  if (!isKnown) {
    fleet.calls.set(sid, {
      call_sid: sid,
      pod_name: podName,
      source_pool: event.pool ?? '',
      merchant_id: event.merchant ?? '',
      provider: '',
      flow: '',
      template: '',
      allocated_at: at,
      renewed_at: null,
      lease_expires_at: expires,
      fence: Number(event.fence ?? 0),
    });
  }
  // Also for a known call: its pod may have been read before the call started.
  const pod = fleet.pods.get(podName);
  if (!pod || pod.leases.some((lease) => lease.call_sid === sid)) return;
  const lease = { call_sid: sid, lease_expires_at: known?.lease_expires_at ?? expires };
  changePod(fleet, podName, { leases: [...pod.leases, lease] });
}

function endCall(fleet: Fleet, { call: sid = '', pod: podName }: Partial<RouterEvent>): void {
  const name = podName ?? fleet.calls.get(sid)?.pod_name;
  fleet.calls.delete(sid);
  const pod = name === undefined ? undefined : fleet.pods.get(name);
  if (!pod?.leases.some((lease) => lease.call_sid === sid)) return;
  changePod(fleet, pod.pod_name, { leases: pod.leases.filter((lease) => lease.call_sid !== sid) });
}

function changePod(fleet: Fleet, name: string, change: Partial<Pod>, mayBeNew = false): void {
  const known = fleet.pods.get(name);
  if (!known && !mayBeNew) return;
  const fresh: Pod = {
    pod_name: name,
    tier: '',
    draining_until: null,
    blocked_by: null,
    leases: [],
    last_report_at: null,
    uid: '',
    started_at: null,
  };
  fleet.pods.set(name, { ...(known ?? fresh), ...change });
}

function untilOf(ms: string | undefined): string | null {
  return ms !== undefined && /^\d+$/.test(ms) ? new Date(Number(ms)).toISOString() : null;
}

/** The longest time between the last renewal of a call and its deadline. */
export function learnLease(calls: Iterable<Call>): number {
  let longest = 0;
  for (const { allocated_at, renewed_at, lease_expires_at } of calls) {
    if (lease_expires_at === null) continue;
    longest = Math.max(longest, Date.parse(lease_expires_at) - Date.parse(renewed_at ?? allocated_at));
  }
  return longest;
}
