/** The counts on the overview page for the last hour. */
import { expect, it } from 'vitest';
import { levelOf, spanText, successOf, trafficOf } from '../../console/src/traffic.js';
import type { History, HistoryPoint } from '../../console/src/types.js';

const startMs = Date.parse('2026-11-15T08:53:20.000Z');
const at = (seconds: number) => new Date(startMs + seconds * 1000).toISOString();

function point(seconds: number, rates: Partial<HistoryPoint>): HistoryPoint {
  return {
    at: at(seconds),
    allocated: 0,
    released: 0,
    no_pods: 0,
    errors: 0,
    shed: 0,
    p50_ms: null,
    p99_ms: null,
    active_calls: null,
    available: null,
    assigned: null,
    capacity: null,
    waiting: null,
    recovered: 0,
    lost: 0,
    waits_served: 0,
    waits_within_5s: 0,
    waits_within_20s: 0,
    waits_abandoned: 0,
    waits_expired: 0,
    records: {},
    ...rates,
  };
}

function history(points: HistoryPoint[], seenSeconds: number[]): History {
  return {
    step_seconds: 10,
    replicas: seenSeconds.map((seconds, i) => ({
      name: `router-${i}`,
      version: '1.0.0',
      is_leader: i === 0,
      started_at: at(0),
      seen_at: at(seconds),
    })),
    points,
  };
}

it('covers ten seconds after ten seconds', () => {
  const { seconds, allocated } = trafficOf(history([point(0, { allocated: 0.6 })], [10]));
  expect([allocated, spanText(seconds)]).toEqual([6, 'in 10 s']);
});

it('the rate is the average of the time in which the calls were counted', () => {
  const points = [point(0, { allocated: 4 }), point(10, { allocated: 0 }), point(20, { allocated: 2 })];
  const { seconds, allocated, allocatedPerSecond } = trafficOf(history(points, [30]));
  expect([allocated, seconds, allocatedPerSecond]).toEqual([60, 30, 2]);
});

it('counts an incomplete step up to the last report of every router', () => {
  const points = [point(0, { allocated: 2 }), point(10, { allocated: 2 })];
  const { seconds, allocated } = trafficOf(history(points, [14, 19]));
  expect([allocated, seconds]).toEqual([28, 14]);
});

it('covers the last hour, also when no router reports any more', () => {
  const points = Array.from({ length: 360 }, (_, i) => point(10 * i, { allocated: 1 }));
  for (const seen of [[3595], []]) {
    const { seconds } = trafficOf(history(points, seen));
    expect(spanText(seconds)).toBe('in the last hour');
  }
  expect(spanText(trafficOf(history(points.slice(0, 30), [300])).seconds)).toBe('in 5 min');
});

it('counts calls rejected for overload as failures, and separately', () => {
  const points = [
    point(0, { allocated: 1, shed: 3 }),
    point(10, { allocated: 1, no_pods: 0.5, errors: 0.5 }),
  ];
  expect(trafficOf(history(points, [20]))).toMatchObject({
    allocated: 20,
    noPods: 5,
    shed: 30,
    success: 20 / 60,
  });
  expect(points.map(successOf)).toEqual([0.25, 0.5]);
});

it('has no success rate without requests', () => {
  expect(trafficOf(history([point(0, {})], [10])).success).toBeNull();
  expect(successOf(point(0, {}))).toBeNull();
});

it('has the service level of all calls, and the share of the waits that ended without a pod', () => {
  const waits = {
    waits_served: 4,
    waits_within_5s: 1,
    waits_within_20s: 3,
    waits_abandoned: 0.5,
    waits_expired: 0.5,
  };
  const points = [point(0, { allocated: 8, no_pods: 1, ...waits })];
  expect(trafficOf(history(points, [10])).waits).toEqual({
    served: 40,
    unserved: 10,
    within5s: 0.5,
    within20s: 0.7,
    unservedShare: 0.2,
  });
  expect(points.map(levelOf)).toEqual([0.7]);
  const none = trafficOf(history([point(0, {})], [10])).waits;
  expect([none.within20s, none.unservedShare]).toEqual([null, null]);
});
