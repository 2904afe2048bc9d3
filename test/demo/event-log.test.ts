import { describe, expect, test } from 'vitest';
import type { StoreEvent } from '../../src/calls/events.js';
import { EventLog } from '../../src/demo/event-log.js';
import { SeededRandom } from '../../src/demo/seeded-random.js';

let sequence = 0;
function event(type: string, fields: Record<string, string>, atMs = 1000): StoreEvent {
  sequence += 1;
  return { id: `${atMs}-${sequence}`, type, at: new Date(atMs).toISOString(), fields };
}

const kinds = (lines: { kind: string }[]) => lines.map(({ kind }) => kind);

describe('the event log of the demo', () => {
  test('distinguishes an allocation from a fallback by the chain of the merchant', () => {
    const log = new EventLog();
    const place = (pool: string, merchant: string) =>
      log.linesOf(event('call_allocated', { call: 'c', pod: 'p', pool, merchant }))[0];
    expect(place('pool:gold', '')).toMatchObject({ kind: 'allocated', text: 'gold' });
    expect(place('pool:basic', '')).toMatchObject({
      kind: 'fallback',
      text: 'no free pod in gold, standard',
    });
    expect(place('merchant:acme', 'acme')).toMatchObject({ kind: 'merchant', text: 'acme’s own pool' });
    expect(place('pool:standard', 'acme')).toMatchObject({
      kind: 'fallback',
      text: 'no free pod in acme’s own pool',
    });
    expect(log.counts).toMatchObject({ fallbacks: 2 });
  });

  test('shows a caller on hold, the place in the queue, and how the wait ends', () => {
    const log = new EventLog();
    const of = (type: string, fields: Record<string, string>) =>
      log.linesOf(event(type, { call: 'c', ...fields }))[0];
    expect(of('call_waiting', { position: '3', chain: 'pool:gold', saw: '' })).toMatchObject({
      kind: 'waiting',
      text: 'all busy: on hold, place 3 in the queue',
    });
    expect(of('call_assigned', { pod: 'p', pool: 'pool:gold', waited_ms: '2340' })).toMatchObject({
      kind: 'assigned',
      text: 'gold, after 2.3 s on hold',
    });
    expect(log.isInStore('c')).toBe(true);
    expect(of('wait_abandoned', { waited_ms: '900' })).toMatchObject({ kind: 'hung up' });
    expect(of('wait_expired', { waited_ms: '30000' })).toMatchObject({ text: 'no agent within 30.0 s' });
  });

  test('logs a drain as complete with the last call of its pod, not before', () => {
    const log = new EventLog();
    for (const call of ['a', 'b'])
      log.linesOf(event('call_allocated', { call, pod: 'p', pool: 'pool:gold', merchant: '' }));
    expect(kinds(log.linesOf(event('pod_draining', { pod: 'p', calls: '2' })))).toEqual(['draining']);
    const end = (call: string) => log.linesOf(event('call_released', { call, pod: 'p', pool: '' }));
    expect(kinds(end('a'))).toEqual(['released']);
    expect(kinds(end('b'))).toEqual(['released', 'drained']);
  });

  test('logs the drain of an idle pod as complete at once', () => {
    expect(kinds(new EventLog().linesOf(event('pod_draining', { pod: 'p', calls: '0' })))).toEqual([
      'draining',
      'drained',
    ]);
  });

  test('logs the reason and the age of a recovered call', () => {
    const log = new EventLog();
    log.linesOf(event('call_allocated', { call: 'c', pod: 'p', pool: 'pool:gold', merchant: '' }, 1000));
    const [line] = log.linesOf(
      event('call_recovered', { call: 'c', pod: 'p', pool: 'pool:gold', reason: 'lease expired' }, 13_500),
    );
    expect(line).toMatchObject({ kind: 'recovered', text: expect.stringContaining('lease expired') });
    expect(line?.text).toContain('12.5 s');
  });

  test('ignores a repeated drain request, and forgets the drain when the pod is removed', () => {
    const log = new EventLog();
    log.linesOf(event('call_allocated', { call: 'a', pod: 'p', pool: 'pool:gold', merchant: '' }));
    const drain = () => kinds(log.linesOf(event('pod_draining', { pod: 'p', calls: '1' })));
    expect(drain()).toEqual(['draining']);
    expect(drain()).toEqual([]);
    log.linesOf(event('pod_removed', { pod: 'p', pool: 'pool:gold', lost: '0', reason: '' }));
    expect(drain()).toEqual(['draining']);
  });

  test('after a flush only adopted and new calls count as stored', () => {
    const log = new EventLog();
    for (const call of ['a', 'b'])
      log.linesOf(event('call_allocated', { call, pod: 'p', pool: 'pool:basic', merchant: '' }));
    log.storeFlushed();
    expect(['a', 'b'].map((call) => log.isInStore(call))).toEqual([false, false]);
    log.linesOf(event('call_adopted', { call: 'a', pod: 'p', pool: 'pool:basic' }));
    expect(['a', 'b'].map((call) => log.isInStore(call))).toEqual([true, false]);
    expect(log.counts.adopted).toBe(1);
  });

  test('logs an unknown event under its type', () => {
    expect(new EventLog().linesOf(event('pod_painted', { pod: 'p' }))).toMatchObject([{ label: 'painted' }]);
  });
});

describe('SeededRandom', () => {
  test('makes the same choices for the same seed, over the whole range', () => {
    const draw = (seed: number) => {
      const random = new SeededRandom(seed);
      return Array.from({ length: 1000 }, () => random.pick(['a', undefined, 'c']));
    };
    expect(draw(7)).toEqual(draw(7));
    expect(draw(7)).not.toEqual(draw(8));
    for (const choice of ['a', undefined, 'c'])
      expect(draw(7).filter((one) => one === choice).length).toBeGreaterThan(250);
  });
});
