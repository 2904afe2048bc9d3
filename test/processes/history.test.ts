/** The history check finds each kind of wrong history. */
import { describe, expect, it } from 'vitest';
import { overtakings, replay, type StreamEvent } from './history.js';

const limits = { 'pool:gold': 1, 'pool:basic': 2 };
let fence = 0;
const given = (call: string, pod: string, pool = 'pool:gold'): StreamEvent => ({
  type: 'call_allocated',
  call,
  pod,
  pool,
  fence: ++fence,
});
const ended = (call: string, pod: string, type = 'call_released'): StreamEvent => ({
  type,
  call,
  pod,
  pool: '',
  fence: Number.NaN,
});

describe('the replay of the event stream', () => {
  it.each<[string, StreamEvent[], RegExp[]]>([
    ['two in a row are right', [given('1', 'a'), ended('1', 'a'), given('2', 'a')], []],
    ['two on a shared pod are right', [given('1', 'a', 'pool:basic'), given('2', 'a', 'pool:basic')], []],
    ['two on an exclusive pod', [given('1', 'a'), given('2', 'a')], [/a of pool:gold got 2/]],
    [
      'three on a pod shared by two',
      ['1', '2', '3'].map((call) => given(call, 'a', 'pool:basic')),
      [/a of pool:basic got 3/],
    ],
    ['two pods for one call', [given('1', 'a'), given('1', 'b')], [/1 got b while it had a/]],
    [
      'a doubled end',
      [given('1', 'a'), ended('1', 'a'), ended('1', 'a', 'call_recovered')],
      [/1 ended on a/],
    ],
    ['an old fence', [given('1', 'a'), { ...given('2', 'b'), fence: 0 }], [/fence 0 of 2/]],
    ['an unknown pool', [given('1', 'a', 'pool:none')], [/a of pool:none got 1/]],
  ])('%s', (_, events, expected) => {
    expect(replay(events, limits).violations).toEqual(expected.map((text) => expect.stringMatching(text)));
  });

  it('counts', () => {
    const events = [given('1', 'a'), given('2', 'b'), ended('1', 'a')];
    expect(replay(events, limits)).toEqual({ violations: [], allocated: 2, ended: 1, live: 1 });
  });
});

describe('the order of waiting calls', () => {
  const waiting = (type: string, call: string, merchant = ''): StreamEvent => ({
    ...{ type, call, merchant },
    ...{ pod: '', pool: '', fence: Number.NaN },
  });
  const two = [waiting('call_waiting', '1'), waiting('call_waiting', '2')];
  it.each<[string, StreamEvent[], number]>([
    ['by arrival', [...two, waiting('call_assigned', '1'), waiting('call_assigned', '2')], 0],
    ['the second first', [...two, waiting('call_assigned', '2')], 1],
    ['a new call first', [...two, waiting('call_allocated', '3')], 1],
    ['after the first has left', [...two, waiting('wait_abandoned', '1'), waiting('call_assigned', '2')], 0],
    ['another merchant', [...two, waiting('call_allocated', '3', 'acme')], 0],
  ])('%s', (_, events, count) => {
    expect(overtakings(events)).toHaveLength(count);
  });
});
