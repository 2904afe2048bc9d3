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
  const { type, call, pod, at } = event;
  switch (type) {
    case 'call_waiting':
      if (call !== undefined) beginWait(fleet, event, call, at);
      return;
    case 'wait_abandoned':
    case 'wait_expired':
      fleet.waiting.delete(call ?? '');
      return;
    case 'call_allocated':
    case 'call_assigned':
    case 'call_adopted':
    case 'call_imported':
      if (call !== undefined && pod !== undefined) beginCall(fleet, event, call, pod, at);
      return;
    case 'call_released':
    case 'call_recovered':
    case 'call_lost':
      if (call !== undefined) endCall(fleet, call, pod);
      return;
  }
  if (pod === undefined) return;
  switch (type) {
    case 'pod_registered':
      changePod(fleet, pod, { tier: tierOf(event.pool ?? '') }, true);
      return;
    case 'pod_removed':
      for (const lease of fleet.pods.get(pod)?.leases ?? []) fleet.calls.delete(lease.call_sid);
      fleet.pods.delete(pod);
      return;
    case 'pod_suspended':
      changePod(fleet, pod, { blocked_by: event.reason ?? 'not_ready' });
      return;
    case 'pod_resumed':
      changePod(fleet, pod, { blocked_by: null });
      return;
    case 'pod_draining':
      changePod(fleet, pod, { blocked_by: 'draining', draining_until: untilOf(event.until) });
      return;
    case 'pod_undrained':
      changePod(fleet, pod, { blocked_by: null, draining_until: null });
      return;
  }
}

/** Its place is that of its arrival until the next read. */
function beginWait(fleet: Fleet, event: RouterEvent, sid: string, at: string): void {
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

function beginCall(fleet: Fleet, event: RouterEvent, sid: string, podName: string, at: string): void {
  fleet.waiting.delete(sid);
  const known = fleet.calls.get(sid);
  const isKnown = known !== undefined && String(known.fence) === event.fence;
  const expires = fleet.leaseMs > 0 ? new Date(Date.parse(at) + fleet.leaseMs).toISOString() : null;
  if (known && !isKnown) endCall(fleet, sid, known.pod_name);
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

function endCall(fleet: Fleet, sid: string, podName: string | undefined): void {
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

/** The most frequent time between a call's last renewal and its deadline. */
export function learnLease(calls: Iterable<Call>): number {
  let longest = 0;
  for (const { allocated_at, renewed_at, lease_expires_at } of calls) {
    if (lease_expires_at === null) continue;
    longest = Math.max(longest, Date.parse(lease_expires_at) - Date.parse(renewed_at ?? allocated_at));
  }
  return longest;
}
