/** The alert conditions of calls, pods and loops. */
import { expect, it } from 'vitest';
import type { LoopState } from '../../src/loop.js';
import { CallAlerts } from '../../src/observe/call-alerts.js';

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
const check = (more: Partial<Parameters<CallAlerts['update']>[0]> = {}) => ({
  storeError: undefined,
  noPods: 0,
  shed: 0,
  full: 0,
  leader: 'a',
  loops: [loop(0, null)],
  ...more,
});
const holding = (alerts: CallAlerts) =>
  alerts.conditions().flatMap(({ name, holds }) => (holds(false) ? [name] : []));

it('has no conditions before the first check', () => {
  expect(new CallAlerts(new Map()).conditions()).toEqual([]);
});

it('fires for three crashes of a loop within ten minutes, not for two, nor for those of an ended leadership', () => {
  const alerts = new CallAlerts(new Map());
  // Crashes before the first check do not count.
  alerts.update(check({ loops: [loop(7, null)] }), 0);
  alerts.update(check({ loops: [loop(9, null)] }), minute);
  expect(holding(alerts)).toEqual([]);
  alerts.update(check({ loops: [loop(10, null)] }), 2 * minute);
  expect(holding(alerts)).toEqual(['calls.loop_crashes']);
  alerts.update(check({ loops: [loop(10, null)] }), 13 * minute);
  expect(holding(alerts)).toEqual([]);
  alerts.update(check({ loops: [] }), 13 * minute);
  alerts.update(check({ loops: [loop(5, null)] }), 13 * minute);
  expect(holding(alerts)).toEqual([]);
});

it('fires for calls rejected for overload for five minutes, with their number', () => {
  const alerts = new CallAlerts(new Map());
  const found = () => alerts.conditions().find(({ name }) => name === 'calls.overloaded');
  alerts.update(check(), 0);
  expect(holding(alerts)).toEqual([]);
  alerts.update(check({ shed: 1 }), minute);
  expect(holding(alerts)).toEqual(['calls.overloaded']);
  expect(found()?.summary).toMatch(/^1 call was rejected/);
  alerts.update(check({ shed: 2 }), minute);
  expect(found()).toMatchObject({ details: { calls: 3 }, severity: 'page' });
  expect(found()?.summary).toMatch(/^3 calls were rejected/);
  alerts.update(check(), 7 * minute);
  expect(holding(alerts)).toEqual([]);
});

it('fires for a call that has waited for more than 30 s; unknown while the store does not respond', () => {
  const alerts = new CallAlerts(new Map());
  const found = () => alerts.conditions().find(({ name }) => name === 'calls.wait_long');
  alerts.update(check({ oldestWaitMs: 30_000 }), 0);
  expect(holding(alerts)).toEqual([]);
  alerts.update(check({ oldestWaitMs: 31_400 }), 0);
  expect(holding(alerts)).toEqual(['calls.wait_long']);
  expect(found()).toMatchObject({ summary: 'a call has waited 31 s for a pod', isShared: true });
  alerts.update(check(), 0);
  expect(found()?.holds(true)).toBeUndefined();
});

it('fires if more than one in ten of at least ten waits got no pod', () => {
  const alerts = new CallAlerts(new Map());
  const waits = (waits_served: number, waits_abandoned: number, waits_expired: number) => {
    alerts.update(check({ unserved: 1, waits: { waits_served, waits_abandoned, waits_expired } }), 0);
    return holding(alerts);
  };
  expect(waits(4, 5, 0)).toEqual([]);
  expect(waits(9, 1, 0)).toEqual([]);
  expect(waits(17, 1, 1)).toEqual(['calls.waits_unserved']);
  expect(alerts.conditions().find(({ name }) => name === 'calls.waits_unserved')).toMatchObject({
    summary: '2 of 19 calls that waited for a pod in the last 10 minutes got none',
    details: { waits: 19, abandoned: 1, expired: 1 },
  });
  expect([alerts.hasUnserved(9 * minute), alerts.hasUnserved(11 * minute)]).toEqual([true, false]);
});

it('fires store_full, not store_down, until five minutes after the last rejected operation', () => {
  const alerts = new CallAlerts(new Map());
  alerts.update(check({ full: 2 }), minute);
  expect(holding(alerts)).toEqual(['calls.store_full']);
  alerts.update(check(), 7 * minute);
  expect(holding(alerts)).toEqual([]);
});

it('fires for the refused calls of this replica, with the number of all replicas', () => {
  const alerts = new CallAlerts(new Map());
  const found = (name: string) => alerts.conditions().find((one) => one.name === name);
  alerts.update(check({ everywhere: { no_pods: 5, shed: 6 } }), minute);
  expect([holding(alerts), alerts.hasRefused(minute)]).toEqual([[], false]);
  alerts.update(check({ noPods: 1, shed: 2, everywhere: { no_pods: 5, shed: 6 } }), minute);
  expect(holding(alerts)).toEqual(['calls.no_pods', 'calls.overloaded']);
  expect(found('calls.no_pods')).toMatchObject({ details: { calls: 5 }, isShared: false });
  expect(found('calls.overloaded')).toMatchObject({ details: { calls: 6 }, isShared: false });
  // The other replicas are unknown: only the calls of this one count.
  alerts.update(check(), minute);
  expect(found('calls.no_pods')?.summary).toBe(
    '1 call got no pod in the last 5 minutes: nothing in its chain was free',
  );
  expect(found('calls.overloaded')?.details).toEqual({ calls: 2 });
  expect([alerts.hasRefused(minute), alerts.hasRefused(7 * minute)]).toEqual([true, false]);
});

it('fires for violations of the last audit until an audit is clean, and only where audits run', () => {
  const alerts = new CallAlerts(new Map());
  const audit = (violations: number) => ({ ...loop(0, 'one'), name: 'audit', counts: { violations } });
  alerts.update(check({ loops: [{ ...audit(0), counts: {} }] }), 0);
  expect(holding(alerts)).toEqual([]);
  alerts.update(check({ loops: [audit(1)] }), minute);
  expect(holding(alerts)).toEqual(['calls.invariant_violations']);
  alerts.update(check({ storeError: 'cannot reach the store', loops: [audit(1)] }), 2 * minute);
  expect(holding(alerts)).toContain('calls.invariant_violations');
  alerts.update(check({ loops: [audit(0)] }), 3 * minute);
  expect(holding(alerts)).toEqual([]);
  alerts.update(check({ loops: [] }), 4 * minute);
  expect(holding(alerts)).toEqual([]);
});

it('fires for a sweep without a finished round in its time, unless the store is down', () => {
  const alerts = new CallAlerts(new Map([['sweep', 2 * minute]]));
  alerts.update(check({ loops: [loop(0, 'one')] }), 0);
  alerts.update(check({ loops: [loop(0, 'two')] }), minute);
  alerts.update(check({ loops: [loop(0, 'two')] }), 3 * minute);
  expect(holding(alerts)).toEqual([]);
  alerts.update(check({ loops: [loop(0, 'two')] }), 3 * minute + 1);
  expect(holding(alerts)).toEqual(['calls.sweeps_stalled']);
  alerts.update(check({ storeError: 'cannot reach the store', loops: [loop(0, 'two')] }), 4 * minute);
  expect(holding(alerts)).toEqual(['calls.store_down']);
});

it('gives a sweep its whole time again when the store responds again', () => {
  const alerts = new CallAlerts(
    new Map([
      ['sweep', 2 * minute],
      ['records-fast-sweep', 2 * minute],
    ]),
  );
  const both = [loop(0, 'one'), { ...loop(0, 'one'), name: 'records-fast-sweep' }];
  alerts.update(check({ loops: both }), 0);
  alerts.update(check({ storeError: 'cannot reach the store', loops: both }), minute);
  alerts.update(check({ storeError: 'cannot reach the store', loops: both }), 10 * minute);
  alerts.update(check({ loops: both }), 10 * minute + 1);
  // The sweeps of records need the database, not the store.
  expect(holding(alerts)).toEqual(['records.sweeps_stalled']);
  alerts.update(check({ loops: both }), 12 * minute);
  expect(holding(alerts)).toEqual(['records.sweeps_stalled']);
  alerts.update(check({ loops: both }), 12 * minute + 1);
  expect(holding(alerts)).toEqual(['calls.sweeps_stalled', 'records.sweeps_stalled']);
});

it('fires a condition of records for a stalled sweep of records', () => {
  const alerts = new CallAlerts(new Map([['records-fast-sweep', minute]]));
  const loops = [{ ...loop(0, 'one'), name: 'records-fast-sweep' }];
  alerts.update(check({ loops }), 0);
  alerts.update(check({ loops }), 2 * minute);
  expect(holding(alerts)).toEqual(['records.sweeps_stalled']);
});

it('leaves no_leader unknown while the store is down', () => {
  const alerts = new CallAlerts(new Map());
  alerts.update(check({ leader: null, storeError: 'cannot reach the store' }), 0);
  const named = () => alerts.conditions().find(({ name }) => name === 'calls.no_leader');
  expect(named()?.holds(false)).toBeUndefined();
  alerts.update(check({ leader: null }), 0);
  expect(named()?.holds(false)).toBe(true);
});

it('fires while the removal brake holds pods, and is unknown without the store', () => {
  const alerts = new CallAlerts(new Map());
  const held = () => alerts.conditions().find(({ name }) => name === 'pool.removals_held');
  alerts.update(check({ removalsHeld: 7 }), 0);
  expect([held()?.holds(false), held()?.details, held()?.isShared]).toEqual([true, { pods: 7 }, true]);
  alerts.update(check({ removalsHeld: 0 }), 0);
  expect(held()?.holds(false)).toBe(false);
  alerts.update(check({ storeError: 'cannot reach the store' }), 0);
  expect(held()?.holds(false)).toBeUndefined();
});
