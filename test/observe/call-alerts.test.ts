import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { LoopState } from '../../src/loop.js';
import { CallWatch } from '../../src/observe/call-alerts.js';

const minute = 60_000;
const loop = (crashes: number, last_round_at: string | null): LoopState => ({
  name: 'sweep',
  running: true,
  rounds: 0,
  crashes,
  last_round_at,
  last_error: null,
  counts: {},
});
const look = (more: Partial<Parameters<CallWatch['look']>[0]> = {}) => ({
  isStoreUp: true,
  noPods: 0,
  shed: 0,
  full: 0,
  leader: 'a',
  loops: [loop(0, null)],
  ...more,
});
const holding = (watch: CallWatch, nowMs: number) =>
  watch.conditions(nowMs).flatMap(({ name, holds }) => (holds(false) ? [name] : []));

it('before the first look there is nothing to say', () => {
  expect(new CallWatch(new Map()).conditions(0)).toEqual([]);
});

it('three crashes within ten minutes are told, two are not, nor those of a term that is over', () => {
  const watch = new CallWatch(new Map());
  // What was there at the first look is no news.
  watch.look(look({ loops: [loop(7, null)] }), 0);
  watch.look(look({ loops: [loop(9, null)] }), minute);
  expect(holding(watch, minute)).toEqual([]);
  watch.look(look({ loops: [loop(10, null)] }), 2 * minute);
  expect(holding(watch, 2 * minute)).toEqual(['calls.loop_crashes']);
  expect(holding(watch, 13 * minute)).toEqual([]);
  watch.look(look({ loops: [] }), 13 * minute);
  watch.look(look({ loops: [loop(5, null)] }), 13 * minute);
  expect(holding(watch, 13 * minute)).toEqual([]);
});

it('calls that were refused for overload are told for five minutes, and counted', () => {
  const watch = new CallWatch(new Map());
  const told = () => watch.conditions(minute).find(({ name }) => name === 'calls.overloaded');
  watch.look(look(), 0);
  expect(holding(watch, 0)).toEqual([]);
  watch.look(look({ shed: 1 }), minute);
  expect(holding(watch, minute)).toEqual(['calls.overloaded']);
  expect(told()?.summary).toMatch(/^1 call was refused/);
  watch.look(look({ shed: 2 }), minute);
  expect(told()).toMatchObject({ details: { calls: 3 }, severity: 'page' });
  expect(told()?.summary).toMatch(/^3 calls were refused/);
  watch.look(look(), 7 * minute);
  expect(holding(watch, 7 * minute)).toEqual([]);
});

it('a full Redis is told for five minutes after the last refusal, and not as a store that does not answer', () => {
  const watch = new CallWatch(new Map());
  watch.look(look({ full: 2 }), minute);
  expect(holding(watch, minute)).toEqual(['calls.store_full']);
  watch.look(look(), 7 * minute);
  expect(holding(watch, 7 * minute)).toEqual([]);
});

it('the number of refused calls is that of all replicas; whether it is told, and until when, is by our own', () => {
  const watch = new CallWatch(new Map());
  const told = (name: string) => watch.conditions(minute).find((one) => one.name === name);
  watch.look(look({ everywhere: { noPods: 5, shed: 6 } }), minute);
  expect([holding(watch, minute), watch.hasRefused(minute)]).toEqual([[], false]);
  watch.look(look({ noPods: 1, shed: 2, everywhere: { noPods: 5, shed: 6 } }), minute);
  expect(holding(watch, minute)).toEqual(['calls.no_pods', 'calls.overloaded']);
  expect(told('calls.no_pods')).toMatchObject({ details: { calls: 5 }, scope: 'local' });
  expect(told('calls.overloaded')).toMatchObject({ details: { calls: 6 }, scope: 'local' });
  // The others could not be read: at least ours are known.
  watch.look(look(), minute);
  expect(told('calls.no_pods')?.summary).toBe(
    '1 call got no pod in the last 5 minutes: nothing in its chain was free',
  );
  expect(told('calls.overloaded')?.details).toEqual({ calls: 2 });
  expect([watch.hasRefused(minute), watch.hasRefused(7 * minute)]).toEqual([true, false]);
});

it('what the last audit found is told until an audit finds nothing, and not by a replica that does not audit', () => {
  const watch = new CallWatch(new Map());
  const audit = (violations: number) => ({ ...loop(0, 'one'), name: 'audit', counts: { violations } });
  watch.look(look({ loops: [{ ...audit(0), counts: {} }] }), 0);
  expect(holding(watch, 0)).toEqual([]);
  watch.look(look({ loops: [audit(1)] }), minute);
  expect(holding(watch, minute)).toEqual(['calls.invariant_violations']);
  watch.look(look({ isStoreUp: false, loops: [audit(1)] }), 2 * minute);
  expect(holding(watch, 2 * minute)).toContain('calls.invariant_violations');
  watch.look(look({ loops: [audit(0)] }), 3 * minute);
  expect(holding(watch, 3 * minute)).toEqual([]);
  watch.look(look({ loops: [] }), 4 * minute);
  expect(holding(watch, 4 * minute)).toEqual([]);
});

it('a sweep is stalled when no round has ended for longer than it may, and nobody says so without the store', () => {
  const watch = new CallWatch(new Map([['sweep', 2 * minute]]));
  watch.look(look({ loops: [loop(0, 'one')] }), 0);
  watch.look(look({ loops: [loop(0, 'two')] }), minute);
  watch.look(look({ loops: [loop(0, 'two')] }), 3 * minute);
  expect(holding(watch, 3 * minute)).toEqual([]);
  expect(holding(watch, 3 * minute + 1)).toEqual(['calls.sweeps_stalled']);
  watch.look(look({ isStoreUp: false, loops: [loop(0, 'two')] }), 4 * minute);
  expect(holding(watch, 4 * minute)).toEqual(['calls.store_down']);
});

it('a sweep that could not end without the store has its whole time again when the store is back', () => {
  const watch = new CallWatch(
    new Map([
      ['sweep', 2 * minute],
      ['records-fast-sweep', 2 * minute],
    ]),
  );
  const both = [loop(0, 'one'), { ...loop(0, 'one'), name: 'records-fast-sweep' }];
  watch.look(look({ loops: both }), 0);
  watch.look(look({ isStoreUp: false, loops: both }), minute);
  watch.look(look({ isStoreUp: false, loops: both }), 10 * minute);
  watch.look(look({ loops: both }), 10 * minute + 1);
  // Those of records need the database, which was there.
  expect(holding(watch, 10 * minute + 1)).toEqual(['records.sweeps_stalled']);
  watch.look(look({ loops: both }), 12 * minute);
  expect(holding(watch, 12 * minute)).toEqual(['records.sweeps_stalled']);
  expect(holding(watch, 12 * minute + 1)).toEqual(['calls.sweeps_stalled', 'records.sweeps_stalled']);
});

it('a stalled sweep of records is told as one of records', () => {
  const watch = new CallWatch(new Map([['records-fast-sweep', minute]]));
  const loops = [{ ...loop(0, 'one'), name: 'records-fast-sweep' }];
  watch.look(look({ loops }), 0);
  watch.look(look({ loops }), 2 * minute);
  expect(holding(watch, 2 * minute)).toEqual(['records.sweeps_stalled']);
});

it('nobody can say that nobody leads while the store is away', () => {
  const watch = new CallWatch(new Map());
  watch.look(look({ leader: null, isStoreUp: false }), 0);
  const named = () => watch.conditions(0).find(({ name }) => name === 'calls.no_leader');
  expect(named()?.holds(false)).toBeUndefined();
  watch.look(look({ leader: null }), 0);
  expect(named()?.holds(false)).toBe(true);
});

it('every condition has a page in the runbook', () => {
  const watch = new CallWatch(new Map());
  watch.look(look(), 0);
  const pages = watch.conditions(0).map(({ runbook }) => runbook.split('#') as [string, string]);
  expect(pages).toHaveLength(10);
  for (const [file, anchor] of pages) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
    expect(
      [...text.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => title.toLowerCase().replaceAll(' ', '-')),
    ).toContain(anchor);
  }
});
