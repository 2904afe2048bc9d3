import { describe, expect, test } from 'vitest';
import { instanceOf } from '../../src/demo/processes.js';
import { externalProgram, RecordTracker, type StatusChange } from '../../src/demo/records/tracker.js';
import { ManualClock } from '../support/manual-clock.js';

const first = instanceOf('worker-1', 1);
const second = instanceOf('worker-2', 1);

function open() {
  const clock = new ManualClock();
  const logged: string[] = [];
  const tracker = new RecordTracker(clock, (text) => logged.push(text));
  const change = (
    record: string,
    status: StatusChange['status'],
    by = 'demo',
    more: Partial<StatusChange> = {},
  ) =>
    tracker.apply({
      kind: 'pages',
      record,
      status,
      by,
      url: `http://linden-bakery.example:8080/${record}`,
      title: null,
      error: null,
      ...more,
    });
  return { clock, logged, tracker, change };
}

describe('the record tracker of the demo', () => {
  test('counts queued, running and finished records, and describes the latest', () => {
    const { tracker, change } = open();
    for (const record of ['a', 'b', 'c', 'd']) change(record, 'Queued');
    for (const record of ['a', 'b', 'c']) change(record, 'Processing', first);
    change('a', 'Completed', first, { title: 'Team' });
    expect(tracker.counts('pages')).toEqual({
      queued: 1,
      running: 2,
      done: 1,
      failed: 0,
      latest: 'linden-bakery.example/a: Team',
    });
    change('b', 'Failed', first, { error: 'GET http://linden-bakery.example:8080/b answered 404' });
    expect(tracker.counts('pages')).toMatchObject({
      failed: 1,
      latest: 'linden-bakery.example/b: answered 404',
    });
    expect(tracker.counts('sitemaps')).toMatchObject({ queued: 0, running: 0, done: 0 });
    expect(tracker.heldBy(first)).toBe(1);
  });

  test('logs when the records of a killed worker are requeued, and who finished them', () => {
    const { tracker, change, logged, clock } = open();
    for (const record of ['a', 'b']) change(record, 'Queued');
    for (const record of ['a', 'b']) change(record, 'Processing', first);
    expect(tracker.exited(first, clock.monotonic())).toBe(2);
    expect(tracker.stuck).toBe(2);
    clock.advance(5200);
    change('a', 'Queued', second);
    expect(logged).toEqual([]);
    change('b', 'Queued', second);
    expect(tracker.stuck).toBe(0);
    expect(tracker.requeued).toBe(2);
    expect(logged.splice(0)).toEqual(['2 records of worker-1 requeued after 5.2 s']);
    change('a', 'Processing', second);
    change('b', 'Processing', instanceOf('worker-1', 2));
    change('a', 'Completed', second);
    expect(logged).toEqual([]);
    change('b', 'Failed', instanceOf('worker-1', 2));
    expect(logged).toEqual([
      'all 2 records of worker-1 finished by worker-1 (restarted) and worker-2; finished twice so far: 0',
    ]);
  });

  test('does not count a record that a killed worker had just finished as requeued', () => {
    const { tracker, change, logged, clock } = open();
    change('a', 'Queued');
    change('a', 'Processing', first);
    tracker.exited(first, clock.monotonic());
    change('a', 'Completed', first);
    expect(tracker.requeued).toBe(0);
    expect(logged).toEqual(['the record of worker-1 finished by itself; finished twice so far: 0']);
    expect(tracker.exited(second, clock.monotonic())).toBe(0);
  });

  test('counts the records of an external program as stuck until they are requeued', () => {
    const { tracker, change, logged } = open();
    for (const record of ['a', 'b']) change(record, 'Processing', externalProgram);
    expect(tracker.stuck).toBe(2);
    change('a', 'Queued', instanceOf('router-1', 1));
    expect(tracker.stuck).toBe(1);
    expect([tracker.takeReclaimed(), tracker.takeReclaimed()]).toEqual([1, 0]);
    expect(tracker.requeued).toBe(0);
    expect(logged).toEqual([]);
  });

  test('a retried record counts neither as failed nor as finished twice', () => {
    const { tracker, change } = open();
    change('a', 'Queued');
    change('a', 'Processing', first);
    change('a', 'Failed', first);
    change('a', 'Queued', instanceOf('router-2', 1), { isRetry: true });
    expect(tracker.counts('pages')).toMatchObject({ queued: 1, failed: 0 });
    change('a', 'Processing', second);
    change('a', 'Completed', second);
    expect(tracker.counts('pages')).toMatchObject({ queued: 0, done: 1, failed: 0 });
    expect(tracker.twice).toBe(0);
  });

  test('counts a second outcome of the same record', () => {
    const { tracker, change } = open();
    change('a', 'Queued');
    change('a', 'Processing', first);
    change('a', 'Completed', first);
    expect(tracker.twice).toBe(0);
    change('a', 'Completed', second);
    expect(tracker.twice).toBe(1);
    expect(tracker.counts('pages').done).toBe(1);
  });
});
