/** Points in time from the rows of the replicas. */
import { describe, expect, it } from 'vitest';
import { countsSince, noCounts, quantileMs, readCounts } from '../../src/calls/history/counts.js';
import { liveRows, pointsOf, replicasOf } from '../../src/calls/history/points.js';
import { parseRow, toFields, type WrittenRow, withoutDuplicates } from '../../src/calls/history/rows.js';
import { Metrics } from '../../src/calls/metrics.js';
import { RecordMetrics } from '../../src/records/metrics.js';

const t0 = 1_800_000_000_000;
const second = 1000;
let check = 0;

function row(
  atMs: number,
  given: Partial<Omit<WrittenRow, 'counts'>> & { allocated?: number } = {},
): WrittenRow {
  const { allocated = 0, ...rest } = given;
  check += 1;
  return {
    atMs,
    name: 'a',
    setup: '',
    version: '1.0.0',
    isLeader: false,
    startedAtMs: t0,
    check,
    firstCheck: check,
    ms: 10 * second,
    gauges: { active_calls: 1, available: 2, assigned: 3, capacity: 4, waiting: 5 },
    alerts: [],
    ...rest,
    counts: { ...noCounts(), allocated },
  };
}

const points = (rows: WrittenRow[], nowMs: number, sinceMs = t0, stepMs = 10 * second) =>
  pointsOf(rows, liveRows(rows, nowMs), sinceMs, stepMs);
const shown = (rows: WrittenRow[], nowMs: number, sinceMs?: number) =>
  points(rows, nowMs, sinceMs).map(({ at, allocated }) => [(Date.parse(at) - t0) / second, allocated]);

describe('points of the history', () => {
  it('have the rates of what happened in them', () => {
    const rows = [row(t0 + 10_000, { allocated: 50 }), row(t0 + 20_000, { allocated: 20 })];
    expect(shown(rows, t0 + 21_000)).toEqual([
      [0, 5],
      [10, 2],
    ]);
  });

  it('are sums over replicas, whenever in a step each of them writes', () => {
    const rows = [3, 8, 13, 18, 23, 28].map((at) =>
      row(t0 + at * second, { name: at % 10 === 3 ? 'a' : 'b', allocated: 100 }),
    );
    // Each allocates 10 a second all the time.
    expect(shown(rows, t0 + 29_000)).toEqual([
      [0, 20],
      [10, 20],
      [20, 20],
    ]);
  });

  it('leave out the newest step until every live replica has written a row for it', () => {
    const rows = [
      row(t0 + 9_000, { name: 'a', allocated: 90 }),
      row(t0 + 9_500, { name: 'b', allocated: 95 }),
      row(t0 + 19_000, { name: 'a', allocated: 100 }),
    ];
    expect(shown(rows, t0 + 19_100).map(([at]) => at)).toEqual([0]);
    // It never did: after 30 s it is not waited for.
    rows.push(
      row(t0 + 29_000, { name: 'a', allocated: 100 }),
      row(t0 + 39_000, { name: 'a', allocated: 100 }),
    );
    rows.push(row(t0 + 49_000, { name: 'a', allocated: 100 }));
    expect(shown(rows, t0 + 49_100).map(([at]) => at)).toEqual([0, 10, 20, 30, 40]);
  });

  it('spread a row after an outage over the whole outage, without gauges', () => {
    const rows = [
      row(t0 + 10_000, { allocated: 10 }),
      row(t0 + 60_000, { allocated: 100, ms: 50 * second }),
      row(t0 + 70_000, { allocated: 10 }),
    ];
    const found = points(rows, t0 + 70_000);
    expect(found.map(({ allocated }) => allocated)).toEqual([1, 2, 2, 2, 2, 2, 1]);
    expect(found.map(({ active_calls }) => active_calls)).toEqual([1, null, null, null, null, 1, 1]);
  });

  it('take the highest gauge of a step, or that of the next row if the step has none', () => {
    const gauges = (active_calls: number) => ({
      active_calls,
      available: 0,
      assigned: 9,
      capacity: 9,
      waiting: 0,
    });
    const rows = [
      row(t0 + 9_990, { gauges: gauges(3) }),
      row(t0 + 9_995, { name: 'b', gauges: gauges(5) }),
      row(t0 + 20_005, { gauges: gauges(7), ms: 10_015 }),
      row(t0 + 20_006, { name: 'b', gauges: gauges(6), ms: 10_011 }),
    ];
    expect(points(rows, t0 + 21_000).map(({ active_calls }) => active_calls)).toEqual([5, 7, 7]);
  });

  it('are missing without replicas, and start at the requested time', () => {
    const rows = [row(t0 - 50_000, { allocated: 10 }), row(t0 + 5_000, { allocated: 10 }), row(t0 + 100_000)];
    expect(shown(rows, t0 + 100_000).map(([at]) => at)).toEqual([0, 90]);
  });

  it('have latencies over all replicas, and none where nothing was allocated', () => {
    const [a, b, c] = [row(t0 + 10_000), row(t0 + 10_000, { name: 'b' }), row(t0 + 20_000)];
    a.counts.latency = new Map([
      [0.001, 98],
      [0.0025, 0],
    ]);
    b.counts.latency = new Map([
      [0.001, 0],
      [0.0025, 2],
    ]);
    const found = points([a, b, c], t0 + 50_000);
    expect(found.map(({ p50_ms, p99_ms }) => [p50_ms, p99_ms])).toEqual([
      [0.51, 1.75],
      [null, null],
    ]);
  });

  it('have records by workflow', () => {
    const one = row(t0 + 10_000);
    one.counts.records.set('pages', { completed: 20, failed: 10, recovered: 5 });
    const two = row(t0 + 10_000, { name: 'b' });
    two.counts.records.set('pages', { completed: 10, failed: 0, recovered: 0 });
    two.counts.records.set('jobs', { completed: 1, failed: 0, recovered: 0 });
    expect(points([one, two], t0 + 10_000)[0]?.records).toEqual({
      pages: { completed: 3, failed: 1, recovered: 0.5 },
      jobs: { completed: 0.1, failed: 0, recovered: 0 },
    });
  });
});

describe('replicas', () => {
  it('are listed by name as of their last row, up to 30 s ago', () => {
    const rows = [
      row(t0, { name: 'gone' }),
      row(t0 + 1, { name: 'b' }),
      row(t0 + 2, { name: 'a', isLeader: true, version: '1.0.0' }),
      row(t0 + 10_000, { name: 'a', isLeader: false, version: '1.1.0', startedAtMs: t0 + 5_000 }),
    ];
    expect(replicasOf(liveRows(rows, t0 + 30_001))).toEqual([
      {
        name: 'a',
        version: '1.1.0',
        is_leader: false,
        started_at: new Date(t0 + 5_000).toISOString(),
        seen_at: new Date(t0 + 10_000).toISOString(),
      },
      expect.objectContaining({ name: 'b' }),
    ]);
  });
});

describe('a row', () => {
  it('parses from its fields unchanged', () => {
    const given = row(t0 + 7, { isLeader: true, alerts: [] });
    given.counts = {
      allocated: 1,
      released: 2,
      no_pods: 3,
      errors: 4,
      recovered: 5,
      lost: 6,
      shed: 7,
      full: 8,
      waits_served: 9,
      waits_within_5s: 10,
      waits_within_20s: 11,
      waits_abandoned: 12,
      waits_expired: 13,
      latency: new Map([
        [0.001, 3],
        [Number.POSITIVE_INFINITY, 1],
      ]),
      records: new Map([['pages', { completed: 1, failed: 2, recovered: 3 }]]),
    };
    const flat = toFields(given);
    const fields = new Map(flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1] ?? '']] : [])));
    expect(parseRow(`${t0 + 7}-0`, fields)).toEqual(given);
    // Version 0.1.0 wrote fewer counts and gauges.
    const older = parseRow('7-0', fields.set('counts', '1,2,3,4,5,6,7,8').set('gauges', '1,2,3,4'));
    expect(older).toMatchObject({
      counts: { full: 8, waits_served: 0, waits_expired: 0 },
      gauges: { waiting: 0 },
    });
  });

  it.each([
    ['nothing', []],
    ['another kind of entry', [['hello', 'world']]],
    [
      'invalid numbers',
      [
        ['name', 'a'],
        ['counts', 'x'],
        ['gauges', '1,2,3,4'],
      ],
    ],
  ])('is ignored if it has %s', (_, entries) => {
    expect(parseRow('5-0', new Map(entries as [string, string][]))).toBeUndefined();
  });

  it('counts once if the store took it and the reply was lost', () => {
    const rows = [
      row(t0 + 1, { check: 1, firstCheck: 1 }),
      row(t0 + 2, { check: 2, firstCheck: 2 }),
      row(t0 + 3, { check: 2, firstCheck: 2, name: 'b' }),
      row(t0 + 4, { check: 3, firstCheck: 2 }),
      row(t0 + 5, { check: 4, firstCheck: 4 }),
      // The same name after a restart.
      row(t0 + 6, { check: 1, firstCheck: 1, startedAtMs: t0 + 6 }),
    ];
    expect(withoutDuplicates(rows).map(({ atMs }) => atMs - t0)).toEqual([1, 3, 4, 5, 6]);
  });
});

describe('counts', () => {
  it('are those of the metrics, and the difference since', async () => {
    const metrics = new Metrics();
    metrics.allocations.inc({ pool: 'pool:gold', status: 'success' }, 3);
    metrics.allocations.inc({ pool: 'pool:basic', status: 'success' }, 2);
    metrics.allocations.inc({ pool: 'pool:basic', status: 'existing' });
    metrics.allocations.inc({ pool: '', status: 'no_pods' });
    metrics.allocations.inc({ pool: '', status: 'error' });
    metrics.releases.inc({ pool: 'pool:gold', status: 'success' });
    metrics.releases.inc({ pool: 'pool:gold', status: 'draining' });
    metrics.releases.inc({ pool: '', status: 'not_found' });
    metrics.releases.inc({ pool: '', status: 'error' });
    metrics.requestsShed.inc({ kind: 'call' }, 6);
    metrics.requestsShed.inc({ kind: 'other' }, 9);
    metrics.zombiesRecovered.inc(4);
    metrics.callsLost.inc({ reason: 'removed' }, 2);
    metrics.allocateDuration.observe({ status: 'success' }, 0.002);
    metrics.allocateDuration.observe({ status: 'no_pods' }, 9);
    metrics.allocateDuration.observe({ status: 'error' }, 9);
    const { observer } = new RecordMetrics(metrics.registry);
    observer.finished?.('pages', 'completed', 5);
    observer.finished?.('pages', 'failed', 1);
    observer.recovered?.('pages', 'timed_out', 'requeued', 2);
    observer.recovered?.('pages', 'timed_out', 'held', 7);
    const before = await readCounts(metrics);
    expect(before).toMatchObject({
      allocated: 5,
      released: 2,
      no_pods: 1,
      errors: 2,
      shed: 6,
      recovered: 4,
      lost: 2,
    });
    expect([...before.latency].filter(([, count]) => count > 0)).toEqual([
      [0.0025, 1],
      [Number.POSITIVE_INFINITY, 1],
    ]);
    expect(before.records.get('pages')).toEqual({ completed: 5, failed: 1, recovered: 2 });
    metrics.allocations.inc({ pool: 'pool:gold', status: 'success' });
    metrics.allocateDuration.observe({ status: 'success' }, 0.002);
    observer.finished?.('jobs', 'completed', 1);
    const since = countsSince(await readCounts(metrics), before);
    expect(since).toMatchObject({ allocated: 1, released: 0, no_pods: 0 });
    expect([...since.latency.values()].reduce((sum, count) => sum + count, 0)).toBe(1);
    expect(since.records.get('jobs')).toEqual({ completed: 1, failed: 0, recovered: 0 });
    expect(since.records.get('pages')).toEqual({ completed: 0, failed: 0, recovered: 0 });
  });

  it.each([
    [[], 0.5, null],
    [[[0.001, 0]], 0.5, null],
    [[[0.001, 10]], 0.5, 0.5],
    [[[0.001, 10]], 0.99, 0.99],
    [
      [
        [0.001, 1],
        [0.0025, 1],
      ],
      0.99,
      2.47,
    ],
    [
      [
        [0.001, 1],
        [Number.POSITIVE_INFINITY, 99],
      ],
      0.5,
      1,
    ],
  ] as [[number, number][], number, number | null][])(
    'the quantile of %o at %d is %d ms',
    (buckets, q, ms) => {
      expect(quantileMs(new Map(buckets), q)).toBe(ms);
    },
  );
});
