import { describe, expect, test } from 'vitest';
import type { StoreEvent } from '../../src/calls/events.js';
import { Dice } from '../../src/demo/dice.js';
import { Chronicle } from '../../src/demo/event-log.js';

let sequence = 0;
function event(type: string, fields: Record<string, string>, atMs = 1000): StoreEvent {
  sequence += 1;
  return { id: `${atMs}-${sequence}`, type, at: new Date(atMs).toISOString(), fields };
}

function chronicle(): Chronicle {
  return new Chronicle((merchant) =>
    merchant === 'acme' ? ['merchant:acme', 'pool:standard'] : ['pool:gold', 'pool:standard', 'pool:basic'],
  );
}

const kinds = (lines: { kind: string }[]) => lines.map(({ kind }) => kind);

describe('the chronicle', () => {
  test('tells an allocation from a fallback by the chain of the merchant', () => {
    const story = chronicle();
    const place = (pool: string, merchant: string) =>
      story.tell(event('call_allocated', { call: 'c', pod: 'p', pool, merchant }))[0];
    expect(place('pool:gold', '')).toMatchObject({ kind: 'allocated', text: 'gold' });
    expect(place('pool:basic', '')).toMatchObject({
      kind: 'fallback',
      text: 'nothing free in gold, standard',
    });
    expect(place('merchant:acme', 'acme')).toMatchObject({ kind: 'merchant', text: 'acme’s own pool' });
    expect(place('pool:standard', 'acme')).toMatchObject({
      kind: 'fallback',
      text: 'nothing free in acme’s own pool',
    });
    expect(story.counts).toMatchObject({ fallbacks: 2 });
  });

  test('a drain is complete with the last call of its pod, not before', () => {
    const story = chronicle();
    for (const call of ['a', 'b'])
      story.tell(event('call_allocated', { call, pod: 'p', pool: 'pool:gold', merchant: '' }));
    expect(kinds(story.tell(event('pod_draining', { pod: 'p', calls: '2' })))).toEqual(['draining']);
    const end = (call: string) => story.tell(event('call_released', { call, pod: 'p', pool: '' }));
    expect(kinds(end('a'))).toEqual(['released']);
    expect(kinds(end('b'))).toEqual(['released', 'drained']);
    expect(story.counts.drained).toBe(1);
  });

  test('the drain of an idle pod is complete at once', () => {
    expect(kinds(chronicle().tell(event('pod_draining', { pod: 'p', calls: '0' })))).toEqual([
      'draining',
      'drained',
    ]);
  });

  test('a recovered call says why and how old it was', () => {
    const story = chronicle();
    story.tell(event('call_allocated', { call: 'c', pod: 'p', pool: 'pool:gold', merchant: '' }, 1000));
    const [line] = story.tell(
      event('call_recovered', { call: 'c', pod: 'p', pool: 'pool:gold', reason: 'lease expired' }, 13_500),
    );
    expect(line).toMatchObject({ kind: 'recovered', text: expect.stringContaining('lease expired') });
    expect(line?.text).toContain('12.5 s');
  });

  test('a drain that is asked for again is one drain, and a new pod of the same name starts without it', () => {
    const story = chronicle();
    story.tell(event('call_allocated', { call: 'a', pod: 'p', pool: 'pool:gold', merchant: '' }));
    const drain = () => kinds(story.tell(event('pod_draining', { pod: 'p', calls: '1' })));
    expect(drain()).toEqual(['draining']);
    expect(drain()).toEqual([]);
    story.tell(event('pod_removed', { pod: 'p', pool: 'pool:gold', lost: '0', reason: '' }));
    expect(drain()).toEqual(['draining']);
  });

  test('after a loss of the store it knows the calls that were adopted or allocated since', () => {
    const story = chronicle();
    for (const call of ['a', 'b'])
      story.tell(event('call_allocated', { call, pod: 'p', pool: 'pool:basic', merchant: '' }));
    story.forget();
    expect(['a', 'b'].map((call) => story.knows(call))).toEqual([false, false]);
    story.tell(event('call_adopted', { call: 'a', pod: 'p', pool: 'pool:basic' }));
    expect(['a', 'b'].map((call) => story.knows(call))).toEqual([true, false]);
    expect(story.counts.adopted).toBe(1);
  });

  test('an event that it does not know is a line, not a crash', () => {
    expect(chronicle().tell(event('pod_painted', { pod: 'p' }))).toMatchObject([{ label: 'painted' }]);
  });
});

describe('the dice', () => {
  test('give the same choices for the same seed, and use the whole range', () => {
    const draw = (seed: number) => {
      const dice = new Dice(seed);
      return Array.from({ length: 1000 }, () => dice.pick(['a', undefined, 'c']));
    };
    expect(draw(7)).toEqual(draw(7));
    expect(draw(7)).not.toEqual(draw(8));
    for (const face of ['a', undefined, 'c'])
      expect(draw(7).filter((one) => one === face).length).toBeGreaterThan(250);
  });
});
