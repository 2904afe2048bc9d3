/** The independent checker catches every broken history, flags no legal one, and shares no code with the router. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { Facts } from './facts.mjs';
import { judge } from './judge.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const program = join(root, 'scripts', 'check-history.mjs');
const folder = mkdtempSync(join(tmpdir(), 'history-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

// biome-ignore lint/suspicious/noExplicitAny: a mutation changes any field.
type Line = Record<string, any>;
const setup: Line = {
  ...{ type: 'setup', lease_ms: 10_000, drain_ms: 5000, report_grace_ms: 1000 },
  pools: { 'pool:gold': { kind: 'exclusive' }, 'pool:basic': { kind: 'shared', max: 2 } },
  merchants: { acme: { max_calls: 2 }, vip: { priority: 5 }, star: { priority: 5, max_calls: 9 } },
};
const request = (at: number, done: number | null, op: string, more: Line): Line => ({
  ...{ type: 'request', at, done, op, status: done === null ? null : 200 },
  ...more,
});
const given = (at: number, done: number, sid: string, pod: string, fence: number, more: Line = {}): Line => {
  const { was_existing = false, waited_ms, ...sent } = more;
  const source_pool = pod.startsWith('g') ? 'pool:gold' : 'pool:basic';
  const answer = {
    pod_name: pod,
    source_pool,
    fence,
    was_existing,
    ...(waited_ms === undefined ? {} : { waited_ms }),
  };
  return request(at, done, 'allocate', { id: `allocate ${sid}`, sid, ...sent, answer });
};
const error = (at: number, done: number, op: string, code: string, more: Line): Line =>
  request(at, done, op, {
    ...more,
    status: code === 'stale_fence' ? 409 : code === 'call_not_found' ? 404 : 503,
    answer: { code },
  });
const release = (at: number, done: number | null, sid: string, fence?: number): Line =>
  request(at, done, 'release', {
    id: `release ${sid}`,
    sid,
    ...(fence ? { fence } : {}),
    answer: { pod_name: 'x' },
  });
const renew = (at: number, done: number | null, sid: string, fence: number): Line =>
  request(at, done, 'renew', { id: `renew ${sid}`, sid, fence, answer: {} });
const waiting = (at: number, done: number, sid: string, since = sid): Line =>
  request(at, done, 'allocate', {
    id: `wait ${sid}`,
    sid,
    wait_ms: 100,
    status: 202,
    answer: { status: 'waiting', position: 1, waiting_since: since },
  });
const report = (
  at: number,
  done: number | null,
  pod: string,
  calls: string[],
  answer: Line,
  more: Line = {},
): Line =>
  request(at, done, 'report', {
    id: `report ${pod}`,
    pod,
    calls,
    answer: { renewed: [], adopted: [], ended: [], conflicts: [], fences: {}, ...answer },
    ...more,
  });
const pod = (at: number, done: number | null, op: 'drain' | 'undrain', name: string): Line =>
  request(at, done, op, { id: `${op} ${name}`, pod: name, answer: {} });

/** Calls on exclusive and shared pods, a drain, a report, a merchant at its limit, three calls that wait. */
const healthy = (): Line[] => [
  setup,
  given(100, 110, 'a', 'g0', 1001),
  given(120, 130, 'b', 'g1', 1002),
  given(140, 150, 's1', 'b0', 1003),
  given(160, 170, 's2', 'b0', 1004),
  given(180, 190, 'm1', 'g2', 1005, { merchant: 'acme' }),
  given(200, 210, 'm2', 'g3', 1006, { merchant: 'acme' }),
  renew(500, 510, 'a', 1001),
  report(600, 610, 'g1', ['b'], { renewed: ['b'], fences: { b: 1002 } }),
  given(700, 710, 'a', 'g0', 1001, { was_existing: true }),
  release(1000, 1010, 'a', 1001),
  given(1020, 1030, 'c', 'g0', 1007),
  { ...error(1040, 1050, 'release', 'stale_fence', { sid: 'c', fence: 1001 }), id: 'late release' },
  renew(1060, 1070, 'c', 1007),
  waiting(1100, 1200, 'w1'),
  waiting(1210, 1300, 'w1'),
  release(1400, 1410, 'c', 1007),
  { ...given(1310, 1411, 'w1', 'g0', 1008, { waited_ms: 300, wait_ms: 5000 }), id: 'served w1' },
  pod(1500, 1510, 'drain', 'g1'),
  release(1600, 1610, 'b', 1002),
  pod(1800, 1810, 'undrain', 'g1'),
  { ...given(1820, 1830, 'd', 'g1', 1009), id: 'after undrain' },
  renew(1900, 1910, 'w1', 1008),
  release(2000, 2010, 's1', 1003),
  { ...given(2020, 2030, 's3', 'b0', 1010), id: 'third shared' },
  release(2100, 2110, 'm1', 1005),
  { ...given(2120, 2130, 'm3', 'g2', 1011, { merchant: 'acme' }), id: 'third of acme' },
  renew(2200, 2210, 'm2', 1006),
  { type: 'end', at: 3000 },
];

function result(lines: Line[]) {
  const facts = new Facts();
  for (const line of lines) facts.add(line);
  facts.conclude();
  return judge(facts);
}
const promises = (lines: Line[]) => [...new Set(result(lines).violations.map(({ promise }) => promise))];
const without = (...ids: string[]) => healthy().filter(({ id }) => !ids.includes(id));
const changed = (id: string, change: (line: Line) => void) => {
  const lines = structuredClone(healthy());
  const line = lines.find((one) => one.id === id);
  if (!line) throw new Error(`no line ${id}`);
  change(line);
  return lines;
};
const plus = (...lines: Line[]) => [...healthy().slice(0, -1), ...lines, { type: 'end', at: 9000 }];

/** A call of the merchant got a pod of the gold pool, a later one waits, and another merchant's call gets this pod. */
const overtakes = (merchant: string, pod: string) =>
  plus(
    given(2250, 2260, 'v1', 'g7', 1999, { merchant }),
    { ...waiting(2300, 2350, 'v2'), merchant },
    given(2400, 2410, 'x', pod, 2000),
    { ...waiting(2500, 2600, 'v2'), merchant },
  );

const broken: [name: string, promise: number, lines: Line[]][] = [
  ['an exclusive pod is given again before its release', 1, without('release a')],
  ['an exclusive pod is given to a call that asks later', 1, plus(given(2300, 2310, 'x', 'g3', 2000))],
  ['a pod is given again although a report renewed its call', 1, plus(given(615, 620, 'x', 'g1', 1006.5))],
  ['a renewed call loses its pod to another', 1, plus(given(1950, 1960, 'x', 'g0', 2000))],
  [
    'a pod is given again to a call that its next report omits',
    1,
    plus(report(1900, 1906, 'g0', ['w1'], {}), given(1902, 1905, 'x', 'g0', 2000)),
  ],
  ['a call gets a second pod', 2, plus(given(2300, 2310, 'd', 'g5', 2000))],
  [
    'an allocate again is answered with another pod',
    2,
    changed('allocate a', () => {}).map((l) =>
      l.at === 700 ? given(700, 710, 'a', 'g7', 1001.5, { was_existing: true }) : l,
    ),
  ],
  [
    'one fence is answered with two pods',
    2,
    changed('allocate a', () => {}).map((l) =>
      l.at === 700 ? given(700, 710, 'a', 'g7', 1001, { was_existing: true }) : l,
    ),
  ],
  ['a shared pod gets a call beyond its max', 3, without('release s1')],
  [
    'a shared pod gets two calls too many',
    3,
    plus(given(2300, 2310, 'x', 'b0', 2000), given(2320, 2330, 'y', 'b0', 2001)),
  ],
  [
    'a renew of a live call is answered call_not_found',
    5,
    plus(error(2300, 2310, 'renew', 'call_not_found', { sid: 'd', fence: 1009 })),
  ],
  [
    'a release of a live call is answered call_not_found',
    5,
    plus(error(2300, 2310, 'release', 'call_not_found', { sid: 'd' })),
  ],
  [
    'a renew with the right fence is answered stale_fence',
    5,
    plus(error(2300, 2310, 'renew', 'stale_fence', { sid: 'd', fence: 1009 })),
  ],
  ['an allocate again gives the same pod as a new call', 5, plus(given(2300, 2310, 'd', 'g1', 2000))],
  [
    'a report adopts a call that its pod had',
    5,
    plus(report(2300, 2310, 'g1', ['d'], { adopted: ['d'], fences: { d: 2000 } })),
  ],
  ['a report calls its live call a conflict', 5, plus(report(2300, 2310, 'g1', ['d'], { conflicts: ['d'] }))],
  ['a pod is given during its drain', 6, plus(given(1700, 1710, 'x', 'g1', 1008.5))],
  ['a pod is given after a drain without undrain', 6, without('undrain g1')],
  [
    'a release with an old fence is accepted',
    7,
    changed('late release', (line) => Object.assign(line, { status: 200, answer: { pod_name: 'g0' } })),
  ],
  [
    'a release with an old fence frees the pod',
    7,
    plus(
      error(2300, 2310, 'release', 'stale_fence', { sid: 'd', fence: 1000 }),
      given(2320, 2330, 'x', 'g1', 2000),
    ),
  ],
  [
    'a fence is given twice',
    7,
    changed('after undrain', ({ answer }) => {
      answer.fence = 1007;
    }),
  ],
  [
    'a later fence is lower',
    7,
    changed('after undrain', ({ answer }) => {
      answer.fence = 1000.5;
    }),
  ],
  ['a call without waiting gets a pod while another waits', 12, plus(given(1220, 1240, 'x', 'g6', 1007.5))],
  [
    'a call that asked again and again is passed over',
    12,
    plus(waiting(2300, 2350, 'w2'), given(2400, 2410, 'x', 'g6', 2000), waiting(2500, 2600, 'w2')),
  ],
  [
    'a later call of the queue is served first',
    13,
    plus(
      given(2300, 2900, 'w2', 'g5', 2001, { waited_ms: 590, wait_ms: 5000 }),
      given(2400, 2600, 'w3', 'g6', 2000, { waited_ms: 190, wait_ms: 5000 }),
    ),
  ],
  ['a call gets a pod while one of a higher priority waits', 12, overtakes('vip', 'g6')],
  ['a call with a pod is answered waiting', 14, plus(waiting(2300, 2310, 'd'))],
  [
    'a release of a call with a pod is answered was_waiting',
    14,
    plus(request(2300, 2310, 'release', { sid: 'd', answer: { was_waiting: true, pod_name: null } })),
  ],
  [
    'a waiting call has a pod in between',
    14,
    plus(waiting(2300, 2350, 'w2'), given(2400, 2410, 'w2', 'g6', 2000), waiting(2500, 2600, 'w2')),
  ],
  [
    'a merchant gets a call beyond max_calls',
    15,
    without('release m1').map((l) =>
      l.id === 'third of acme' ? given(2120, 2130, 'm3', 'g8', 1011, { merchant: 'acme' }) : l,
    ),
  ],
];

const legal: [name: string, lines: Line[]][] = [
  ['the base history', healthy()],
  [
    'a pod given again while the release is in flight',
    changed('release a', (line) => {
      line.done = 1040;
    }),
  ],
  [
    'a release without a reply that may have happened',
    changed('release a', (line) => Object.assign(line, { done: null, status: null })),
  ],
  [
    'a release that timed out at the router',
    changed('release a', (line) => Object.assign(line, { status: 503, answer: { code: 'timeout' } })),
  ],
  [
    'a second release that finds nothing',
    plus(error(1012, 1018, 'release', 'call_not_found', { sid: 'a', fence: 1001 })),
  ],
  [
    'two releases at once of which one finds nothing',
    plus(error(990, 1015, 'release', 'call_not_found', { sid: 'a' })),
  ],
  ['two allocates of one call at once', plus(given(90, 115, 'a', 'g0', 1001, { was_existing: true }))],
  [
    'a lost allocate whose retry finds the call',
    plus(
      request(2300, null, 'allocate', { sid: 'x' }),
      given(2400, 2410, 'x', 'g5', 2000, { was_existing: true }),
    ),
  ],
  [
    'an allocate whose reply is lost and whose pod another call gets',
    plus(request(2300, null, 'allocate', { sid: 'x' }), given(2400, 2410, 'y', 'g5', 2000)),
  ],
  ['a call whose lease may have expired', [...plus(), given(19_000, 19_010, 'x', 'g3', 3000)]],
  [
    'a renew that comes after the lease',
    plus(error(12_500, 12_510, 'renew', 'call_not_found', { sid: 'm2', fence: 1006 })),
  ],
  ['a lease within the tolerance for clock drift', plus(given(11_850, 11_860, 'x', 'g1', 3000))],
  [
    'a pod that reports without its call',
    plus(report(2300, 2310, 'g1', [], {}), given(2400, 2410, 'x', 'g1', 2000)),
  ],
  [
    'a report without the call whose reply was lost',
    plus(report(2300, null, 'g1', [], {}), given(2400, 2410, 'x', 'g1', 2000)),
  ],
  [
    'an omission, then a renew, then the end of the call',
    plus(report(2300, 2310, 'g1', [], {}), renew(2320, 2330, 'd', 1009), given(2400, 2410, 'x', 'g1', 2000)),
  ],
  [
    'a pod that was replaced',
    plus({ type: 'pod_gone', at: 2300, pod: 'g1' }, given(2310, 2320, 'x', 'g1', 2000)),
  ],
  [
    'an allocate that was sent before the drain was answered',
    plus(given(1505, 1620, 'x', 'g1', 1008.5), release(1630, 1640, 'x')).filter(
      ({ id }) => id !== 'allocate b' && id !== 'report g1' && id !== 'release b',
    ),
  ],
  [
    'a drain that expired',
    [...without('undrain g1').filter(({ id }) => id !== 'after undrain'), given(6600, 6610, 'x', 'g1', 2000)],
  ],
  [
    'a drain beside an undrain without a reply',
    plus(
      pod(2300, null, 'undrain', 'g6'),
      pod(2310, 2320, 'drain', 'g6'),
      given(2400, 2410, 'x', 'g6', 2000),
    ),
  ],
  ['a call that got a pod while the other one entered the queue', plus(given(1105, 1120, 'x', 'g6', 1007.5))],
  [
    'two calls that arrive at once and are served in any order',
    plus(
      given(2300, 2900, 'w2', 'g5', 2001, { waited_ms: 590, wait_ms: 5000 }),
      given(2305, 2600, 'w3', 'g6', 2000, { waited_ms: 290, wait_ms: 5000 }),
    ),
  ],
  [
    'another merchant is served first',
    plus(
      waiting(2300, 2350, 'w2'),
      given(2400, 2410, 'x', 'g6', 2000, { merchant: 'zenith' }),
      waiting(2500, 2600, 'w2'),
    ),
  ],
  ['a pod of a pool that the higher priority never had', overtakes('vip', 'b9')],
  ['a higher priority that may be at its limit', overtakes('star', 'g6')],
  ['a fence of a concurrent allocate is lower', plus(given(1015, 1200, 'x', 'g6', 1006.5))],
  [
    'a limit that was raised',
    [
      ...without('release m1').map((l) =>
        l.id === 'third of acme' ? given(2120, 2130, 'm3', 'g8', 1011, { merchant: 'acme' }) : l,
      ),
      { type: 'changed', at: 2115, merchants: { acme: { max_calls: 3 } } },
    ],
  ],
  [
    'a limit below the live calls',
    plus({ type: 'changed', at: 2300, merchants: { acme: { max_calls: 1 } } }),
  ],
  [
    'a call that left the queue and entered it again',
    plus(
      waiting(2300, 2350, 'w2', 's1'),
      given(2400, 2410, 'x', 'g6', 2000),
      waiting(2500, 2600, 'w2', 's2'),
    ),
  ],
];

describe('the checker', () => {
  it.each(broken)('finds that %s (promise %i)', (_, promise, lines) => {
    expect(promises(lines)).toContain(promise);
  });

  it.each(legal)('accepts %s', (_, lines) => {
    expect(result(lines).violations).toEqual([]);
  });

  it('excuses what a fault that loses writes explains, and counts it as a double allocation', () => {
    const lines = plus(given(2300, 2310, 'x', 'g3', 2000));
    expect(result(lines)).toMatchObject({
      double_allocations: 1,
      violations: [{ promise: 1, overlap_ms: 6690 }],
      excused: [],
    });
    const fault = { type: 'fault', at: 2220, until: 2250, kind: 'kill master', loses_writes: true };
    expect(result([...lines, fault])).toMatchObject({
      double_allocations: 1,
      violations: [],
      excused: [{ promise: 1, sid: 'x', other: 'm2', pod: 'g3' }],
    });
    const { loses_writes: _, ...harmless } = fault;
    expect(result([...lines, harmless]).violations).toHaveLength(1);
    expect(result([...lines, { ...fault, at: 2150, until: 2190 }]).violations).toHaveLength(1);
  });
});

describe('npm run check-history', () => {
  const run = (text: string, ...options: string[]) => {
    const file = join(folder, 'history.ndjson');
    writeFileSync(file, text);
    return spawnSync(process.execPath, [program, ...options, file], { encoding: 'utf8' });
  };
  const toText = (lines: Line[]) => lines.map((line) => `${JSON.stringify(line)}\n`).join('');

  it('exits with 0, 1 or 2, and prints JSON', () => {
    expect(run(toText(healthy()))).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('no violation'),
    });
    const bad = run(toText(without('release a')), '--json');
    expect(bad.status).toBe(1);
    expect(JSON.parse(bad.stdout)).toMatchObject({
      requests: 26,
      double_allocations: 2,
      violations: [
        { promise: 1, sid: 'c' },
        { promise: 1, sid: 'w1' },
      ],
    });
    const half = toText(healthy()).slice(0, -40);
    expect(run(half)).toMatchObject({ status: 2, stderr: expect.stringMatching(/line \d+: not JSON/) });
    expect(run('')).toMatchObject({ status: 2, stderr: expect.stringContaining('the file is empty') });
    expect(run(toText([setup, { type: 'request', at: 1, op: 'steal' }])).stderr).toContain(
      'line 2: unknown op "steal"',
    );
    expect(execFileSync(process.execPath, [program, '--help'], { encoding: 'utf8' })).toContain('Usage');
  });

  it('shares no code with the router', () => {
    const files = [
      program,
      ...['facts.mjs', 'judge.mjs', 'read.mjs', 'writer.ts'].map((name) => join(root, 'test/history', name)),
    ];
    const targets = files.flatMap((file) =>
      [...readFileSync(file, 'utf8').matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g)].map(
        ([, target = '']) => target,
      ),
    );
    const own = /^(node:\w+|(\.|\.\.\/test\/history)\/(facts|judge|read)\.mjs)$/;
    expect(targets.length).toBeGreaterThan(5);
    expect(targets.filter((target) => !own.test(target))).toEqual([]);
  });
});
