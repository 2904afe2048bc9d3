import { describe, expect, test } from 'vitest';
import { lifeOf } from '../../src/demo/lives.js';
import { type Move, RecordBook, stranger } from '../../src/demo/records/tracker.js';
import { ManualClock } from '../support/manual-clock.js';

const first = lifeOf('worker-1', 1);
const second = lifeOf('worker-2', 1);

function open() {
  const clock = new ManualClock();
  const told: string[] = [];
  const book = new RecordBook({ clock, tell: (text) => told.push(text) });
  const move = (record: string, status: Move['status'], by = 'demo', more: Partial<Move> = {}) =>
    book.hear({
      kind: 'pages',
      record,
      status,
      by,
      url: `http://linden-bakery.example:8080/${record}`,
      found: null,
      error: null,
      ...more,
    });
  return { clock, told, book, move };
}

describe('the book of records', () => {
  test('counts what waits, runs and is finished, and keeps the latest in words', () => {
    const { book, move } = open();
    for (const record of ['a', 'b', 'c', 'd']) move(record, 'Queued');
    for (const record of ['a', 'b', 'c']) move(record, 'Processing', first);
    move('a', 'Completed', first, { found: 'Team' });
    expect(book.counts('pages')).toEqual({
      queued: 1,
      running: 2,
      done: 1,
      failed: 0,
      latest: 'linden-bakery.example/a: Team',
    });
    move('b', 'Failed', first, { error: 'GET http://linden-bakery.example:8080/b answered 404' });
    expect(book.counts('pages')).toMatchObject({
      failed: 1,
      latest: 'linden-bakery.example/b: answered 404',
    });
    expect(book.counts('sitemaps')).toMatchObject({ queued: 0, running: 0, done: 0 });
    expect(book.heldBy(first)).toBe(1);
  });

  test('tells when the records of a killed worker are back, and who has finished them', () => {
    const { book, move, told, clock } = open();
    for (const record of ['a', 'b']) move(record, 'Queued');
    for (const record of ['a', 'b']) move(record, 'Processing', first);
    expect(book.died(first, clock.monotonic())).toBe(2);
    expect(book.stuck).toBe(2);
    clock.advance(5200);
    move('a', 'Queued', second);
    expect(told).toEqual([]);
    move('b', 'Queued', second);
    expect(book.stuck).toBe(0);
    expect(book.returned).toBe(2);
    expect(told.splice(0)).toEqual(['2 records of worker-1 came back after 5.2 s']);
    move('a', 'Processing', second);
    move('b', 'Processing', lifeOf('worker-1', 2));
    move('a', 'Completed', second);
    expect(told).toEqual([]);
    move('b', 'Failed', lifeOf('worker-1', 2));
    expect(told).toEqual([
      'all 2 records of worker-1 are finished by worker-1 (started again) and worker-2; finished twice since the start: 0',
    ]);
  });

  test('a record that a killed worker had just finished is no record that came back', () => {
    const { book, move, told, clock } = open();
    move('a', 'Queued');
    move('a', 'Processing', first);
    book.died(first, clock.monotonic());
    move('a', 'Completed', first);
    expect(book.returned).toBe(0);
    expect(told).toEqual(['the record of worker-1 is finished by itself; finished twice since the start: 0']);
    expect(book.died(second, clock.monotonic())).toBe(0);
  });

  test('what a stranger has left is stuck until it is queued again', () => {
    const { book, move, told } = open();
    for (const record of ['a', 'b']) move(record, 'Processing', stranger);
    expect(book.stuck).toBe(2);
    move('a', 'Queued', lifeOf('router-1', 1));
    expect(book.stuck).toBe(1);
    expect([book.takeReclaimed(), book.takeReclaimed()]).toEqual([1, 0]);
    expect(book.returned).toBe(0);
    expect(told).toEqual([]);
  });

  test('a failed record that is tried again is no failed one any more, and no second outcome', () => {
    const { book, move } = open();
    move('a', 'Queued');
    move('a', 'Processing', first);
    move('a', 'Failed', first);
    move('a', 'Queued', lifeOf('router-2', 1), { isRetry: true });
    expect(book.counts('pages')).toMatchObject({ queued: 1, failed: 0 });
    move('a', 'Processing', second);
    move('a', 'Completed', second);
    expect(book.counts('pages')).toMatchObject({ queued: 0, done: 1, failed: 0 });
    expect(book.twice).toBe(0);
  });

  test('sees a second outcome of the same record', () => {
    const { book, move } = open();
    move('a', 'Queued');
    move('a', 'Processing', first);
    move('a', 'Completed', first);
    expect(book.twice).toBe(0);
    move('a', 'Completed', second);
    expect(book.twice).toBe(1);
    expect(book.counts('pages').done).toBe(1);
  });
});
