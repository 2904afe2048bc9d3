/** The checks of chaos find each bad history, and accept good ones. */
import { expect, it } from 'vitest';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import type { StreamEvent } from '../processes/history.js';
import { CallHistory } from './call-history.js';
import { OnlyGrows, type RecordsBook, recordProblems, streamProblems } from './checks.js';
import { choose, faults } from './faults.js';
import { limits, times } from './times.js';

const startMs = 1_800_000_000_000;

/** A history on virtual time. */
function startHistory() {
  const time = { ms: startMs };
  const history = new CallHistory(startMs, () => time.ms);
  let fence = 1000;
  const given = (sid: string, pod = 'agent-0', more: { uid?: string; pool?: string; fence?: number } = {}) =>
    history.allocatedAs(
      {
        ...{ sid, pod, uid: more.uid ?? 'uid-1', pool: more.pool ?? 'pool:gold', wasExisting: false },
        ...{ fence: more.fence ?? ++fence, leaseUntilMs: time.ms + times.leaseMs },
      },
      history.before(),
    );
  return { history, given, pass: (ms: number) => (time.ms += ms), now: () => time.ms };
}

it('finds an exclusive pod that was allocated twice', () => {
  const { history, given } = startHistory();
  given('a');
  given('b');
  expect(history.violations).toEqual([
    expect.stringContaining('agent-0 (pool:gold, at most 1) was given to b beside a'),
  ]);
});

it('accepts a full shared pod, and finds one call more', () => {
  const { history, given } = startHistory();
  for (const sid of ['a', 'b', 'c']) given(sid, 'agent-0', { pool: 'pool:basic' });
  expect(history.violations).toEqual([]);
  given('d', 'agent-0', { pool: 'pool:basic' });
  expect(history.violations).toHaveLength(1);
});

it('accepts the next call of a pod after its call ended or the pod was replaced', () => {
  const { history, given } = startHistory();
  history.over(given('a'), 'it ended');
  given('b');
  given('c', 'agent-0', { uid: 'uid-2' });
  expect(history.violations).toEqual([]);
});

it('a call that no report has named is safe for the grace, and no longer', () => {
  const early = startHistory();
  early.given('a');
  early.pass(times.graceMs - 1);
  early.given('b');
  expect(early.history.violations).toHaveLength(1);
  const late = startHistory();
  late.given('a');
  late.pass(times.graceMs);
  late.given('b');
  expect(late.history.violations).toEqual([]);
});

it('a call that a report has named is safe for a lease', () => {
  for (const [afterMs, problems] of [
    [times.leaseMs - 1, 1],
    [times.leaseMs, 0],
  ] as const) {
    const { history, given, pass, now } = startHistory();
    const call = given('a');
    pass(1000);
    history.reported(call, now());
    pass(afterMs);
    given('b');
    expect(history.violations).toHaveLength(problems);
  }
});

it('finds a guaranteed call that is denied, forgotten, or on two pods', () => {
  const { history, given, now } = startHistory();
  const [a, b, c] = [given('a', 'agent-0'), given('b', 'agent-1'), given('c', 'agent-2')];
  for (const call of [a, b, c]) history.reported(call, now());
  history.denied(a, 'the router told its agent to drop it', now());
  history.adopted(b, 5000, now());
  given('c', 'agent-3');
  expect(history.violations).toEqual([
    expect.stringContaining('a on agent-0 was promised until'),
    expect.stringContaining('b on agent-1 was forgotten'),
    expect.stringContaining('call c has two pods'),
  ]);
});

it('concludes nothing without a guarantee: an unknown pod, an expired lease, an ended call', () => {
  const { history, given, pass, now } = startHistory();
  const unknown = given('a', 'agent-0');
  history.ofUnknownPod(unknown);
  history.denied(unknown, 'refused', now());
  given('b', 'agent-0');
  const lapsed = given('c', 'agent-1');
  history.reported(lapsed, now());
  pass(times.leaseMs);
  history.denied(lapsed, 'refused', now());
  const over = given('d', 'agent-2');
  history.reported(over, now());
  history.over(over, 'it ended');
  history.denied(over, 'refused', now());
  expect(history.violations).toEqual([]);
});

it('finds a pod that is allocated during an acknowledged drain', () => {
  const { history, given, pass } = startHistory();
  history.drained('agent-0', 'uid-1');
  pass(1);
  history.over(given('a'), 'it ended');
  expect(history.violations).toEqual([expect.stringContaining('although its drain had been answered')]);
  history.undrained('agent-0');
  given('b');
  expect(history.violations).toHaveLength(1);
});

it('a failover excuses earlier requests, and no later ones', () => {
  const { history, given, pass, now } = startHistory();
  history.reported(given('a'), now());
  history.lostWrites();
  expect(history.isLost(now())).toBe(true);
  pass(1);
  expect(history.isLost(now())).toBe(false);
  given('b');
  expect(history.violations).toEqual([]);
  given('c');
  expect(history.violations).toEqual([expect.stringContaining('was given to c beside b')]);
});

it('finds a fence that is not new', () => {
  const { history, given } = startHistory();
  given('a', 'agent-0', { fence: 2000 });
  given('b', 'agent-1', { fence: 2000 });
  expect(history.violations).toEqual([expect.stringContaining('fence 2000 of b is not above 2000')]);
});

const event = (type: string, call: string, pod: string, fence = 0): StreamEvent => ({
  ...{ type, call, pod, pool: 'pool:gold', fence },
});

it('finds a pod allocated twice, or an unended call, in the event stream', () => {
  const good = [
    event('call_allocated', 'a', 'agent-0', 1),
    event('call_released', 'a', 'agent-0'),
    event('call_allocated', 'b', 'agent-0', 2),
    event('call_lost', 'b', 'agent-0'),
  ];
  expect(streamProblems(good, limits)).toEqual([]);
  expect(streamProblems(good.slice(0, 3), limits)).toEqual(['events: 1 calls have begun and not ended']);
  const doubled = good.filter(({ type }) => type !== 'call_released');
  expect(streamProblems(doubled, limits)).toContain('events: agent-0 of pool:gold got b while it served a');
});

it('finds records that finished twice, were left, or had too many effects', () => {
  const good: RecordsBook = {
    statuses: { Completed: 10 },
    changes: [
      { was: 'Queued', became: 'Processing', most: 3 },
      { was: 'Processing', became: 'Queued', most: 2 },
      { was: 'Processing', became: 'Completed', most: 1 },
    ],
    ...{ effectsTooMany: 0, claimsLeft: 0, highestResets: 2, maxResets: 10 },
    failures: [{ error: 'no session: Connection terminated unexpectedly', n: 2 }],
  };
  expect(recordProblems(good)).toEqual([]);
  const lies: Partial<RecordsBook>[] = [
    { changes: [{ was: 'Processing', became: 'Completed', most: 2 }] },
    { changes: [{ was: 'Completed', became: 'Queued', most: 1 }] },
    { statuses: { Completed: 9, Processing: 1 } },
    { statuses: { Completed: 9, Queued: 1 } },
    { effectsTooMany: 1 },
    { claimsLeft: 1 },
    { highestResets: 11 },
    { failures: [{ error: 'Cannot read properties of undefined', n: 1 }] },
    { failures: [{ error: null, n: 1 }] },
  ];
  for (const lie of lies) expect(recordProblems({ ...good, ...lie }), JSON.stringify(lie)).toHaveLength(1);
});

it('finds a decreasing number, unless the store has lost writes', () => {
  const growing = new OnlyGrows();
  expect(growing.look('leader:epoch', 7)).toBeUndefined();
  expect(growing.look('leader:epoch', 6)).toBe('9: leader:epoch decreased from 7 to 6');
  growing.forget();
  expect(growing.look('leader:epoch', 6)).toBeUndefined();
});

it('a seed gives the same faults again, and in time every kind of them', () => {
  const draw = (seed: number, count: number) => {
    const random = new SeededRandom(seed);
    return Array.from({ length: count }, () => choose(random, faults)).map(({ fault, place, forMs }) => [
      ...[fault.name, place, forMs],
    ]);
  };
  expect(draw(7, 50)).toEqual(draw(7, 50));
  expect(new Set(draw(7, 3000).map(([name]) => name)).size).toBe(faults.length);
  expect(new Set(faults.map(({ name }) => name)).size).toBe(faults.length);
});
