/** Routers and pods that disappeared recently. */
import { describe, expect, it } from 'vitest';
import { lostBy, rememberLost } from '../../console/src/live/lost-pods.js';
import { rememberRouters } from '../../console/src/live/routers.js';
import type { Pod } from '../../console/src/types.js';

const nowMs = Date.parse('2026-01-01T12:00:00Z');
const at = (ms: number) => new Date(ms).toISOString();
const router = (name: string, silentMs: number) => ({
  name,
  version: '1',
  is_leader: false,
  started_at: at(nowMs - 3_600_000),
  seen_at: at(nowMs - silentMs),
});
const isOf = (routers: ReturnType<typeof rememberRouters>) => routers.map(({ name, is }) => `${name} ${is}`);

describe('routers', () => {
  it('are late once their heartbeat is overdue', () => {
    const known = rememberRouters([], [router('a', 0), router('b', 10_500), router('c', 14_000)], nowMs);
    expect(isOf(known)).toEqual(['a here', 'b here', 'c late']);
  });

  it('are not late when all of them are: the store failed then', () => {
    expect(isOf(rememberRouters([], [router('a', 20_000), router('b', 25_000)], nowMs))).toEqual([
      'a here',
      'b here',
    ]);
  });

  it('are not late for heartbeats missed during an outage of the store', () => {
    const both = rememberRouters([], [router('a', 0), router('b', 0)], nowMs);
    // The store failed for forty seconds; one router was the first to report again.
    const judged = (ms: number, listed = [router('a', -41_000), router('b', 0)]) =>
      isOf(rememberRouters(both, listed, nowMs + 40_000 + ms, nowMs + 40_000));
    expect(judged(5000)).toEqual(['a here', 'b here']);
    expect(judged(5000, [router('a', -41_000)])).toEqual(['a here', 'b here']);
    expect(judged(13_000)).toEqual(['a here', 'b late']);
    expect(judged(13_000, [router('a', -41_000)])).toEqual(['a here', 'b gone']);
  });

  it('are shown as gone for ten minutes after they left the list, unless they return', () => {
    const both = rememberRouters([], [router('a', 0), router('b', 0)], nowMs);
    const alone = (ms: number) => rememberRouters(both, [router('a', -ms)], nowMs + ms);
    expect(isOf(alone(31_000))).toEqual(['a here', 'b gone']);
    expect(isOf(alone(599_000))).toEqual(['a here', 'b gone']);
    expect(isOf(alone(601_000))).toEqual(['a here']);
    expect(isOf(rememberRouters(alone(31_000), [router('a', 0), router('b', 0)], nowMs))).toEqual([
      'a here',
      'b here',
    ]);
  });
});

describe('pods', () => {
  const pod = (name: string): Pod => ({
    pod_name: name,
    tier: 'merchant:acme',
    draining_until: null,
    blocked_by: null,
    leases: [],
    last_report_at: null,
    uid: '',
    started_at: null,
  });
  const pods = new Map([['acme-0', pod('acme-0')]]);

  it('are remembered with their pool for two minutes after their removal, or until they return', () => {
    const lost = lostBy({ id: '1', type: 'pod_removed', at: at(nowMs), pod: 'acme-0' }, pods);
    expect(lost).toEqual([{ pod: 'acme-0', tier: 'merchant:acme', atMs: nowMs }]);
    expect(rememberLost(lost, new Map(), nowMs + 119_000)).toBe(lost);
    expect(rememberLost(lost, new Map(), nowMs + 121_000)).toEqual([]);
    expect(rememberLost(lost, pods, nowMs + 1000)).toEqual([]);
  });

  it('are not remembered if they were unknown or only drain', () => {
    expect(lostBy({ id: '1', type: 'pod_removed', at: at(nowMs), pod: 'other' }, pods)).toEqual([]);
    expect(lostBy({ id: '1', type: 'pod_draining', at: at(nowMs), pod: 'acme-0' }, pods)).toEqual([]);
  });
});
