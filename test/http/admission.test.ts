/** When new calls are refused, and when no longer: on a clock of the test's own. */
import { expect, it } from 'vitest';
import { Admission, kindOf, minLimit } from '../../src/http/admission.js';
import { ManualClock } from '../support/manual-clock.js';

/** A clock whose timers come as late as the test says, as those of a busy loop do. */
class LateClock extends ManualClock {
  lateMs = 0;
  override after(ms: number, callback: () => void): () => void {
    return super.after(ms + this.lateMs, callback);
  }
}

function setUp({ maxInFlight = 1000, delay = 'on', lateMs = 0 } = {}) {
  const clock = new LateClock();
  clock.lateMs = lateMs;
  const admission = new Admission({ clock, maxInFlight, delayMs: delay === 'on' ? 25 : undefined });
  const enter = (count: number) => Array.from({ length: count }, () => admission.enter('call'));
  const leave = (count: number) => Array.from({ length: count }, () => admission.leave('call'));
  /** Consecutive samples of the loop. */
  const look = (count: number) => {
    for (let i = 0; i < count; i++) clock.advanceToNext();
  };
  return { clock, admission, enter, leave, look };
}

it.each([
  ['POST /api/v1/allocate', 'call'],
  ['POST /api/v1/allocate/', 'call'],
  ['POST /api/v1/allocate?x=1', 'call'],
  ['POST /api/v1/release', 'other'],
  ['POST /api/v1/allocated', 'other'],
  ['POST /api/v1/twilio/allocate', 'other'],
  ['POST /api/v1/pod/allocate/report', 'other'],
  ['GET /', 'other'],
  ['GET ', 'other'],
  ['GET /health', 'probe'],
  ['HEAD /ready?x', 'probe'],
  ['GET /api/v1/metrics', 'probe'],
  ['POST /health', 'other'],
  ['POST /api/v1/drain', 'lasting'],
  ['GET /api/v1/events?since=0', 'lasting'],
  ['GET /api/v1/audit', 'lasting'],
  ['GET /api/v1/drain', 'other'],
  ['POST /api/v1/events', 'other'],
  ['GET /api/v1/events/search', 'other'],
])('%s is of the kind %s', (line, kind) => {
  const [method = '', url = ''] = line.split(' ');
  expect(kindOf(method, url)).toBe(kind);
});

it('new calls get in up to the limit, all others up to twice as many; probes have always room', () => {
  const { admission, enter } = setUp({ maxInFlight: 3 });
  expect(enter(4)).toEqual([true, true, true, false]);
  expect(Array.from({ length: 4 }, () => admission.enter('other'))).toEqual([true, true, true, false]);
  expect(admission.inFlight).toBe(6);
  expect(admission.hasRoom('probe')).toBe(true);
  expect(admission.enter('lasting')).toBe(true);
  admission.leave('other');
  expect([admission.enter('call'), admission.enter('other')]).toEqual([false, true]);
});

it('strangers have their own places, and never take one of a known caller', () => {
  const { admission, enter } = setUp({ maxInFlight: 2 });
  const inside = Array.from({ length: 1000 }, () => admission.enter('stranger')).filter(Boolean);
  expect(inside).toHaveLength(64);
  expect([admission.inFlight, ...enter(2)]).toEqual([0, true, true]);
  admission.leave('stranger');
  expect([admission.enter('stranger'), admission.enter('stranger')]).toEqual([true, false]);
});

it('long requests take no place of a call, and have a limit too', () => {
  const { admission } = setUp({ maxInFlight: 1 });
  const inside = Array.from({ length: 3000 }, () => admission.enter('lasting')).filter(Boolean);
  expect(inside).toHaveLength(2000);
  expect(admission.enter('call')).toBe(true);
  admission.leave('lasting');
  expect(admission.enter('lasting')).toBe(true);
});

it('a loop that is always late accepts fewer new calls than are in flight, never fewer than the minimum', () => {
  const { admission, enter, look } = setUp({ lateMs: 40 });
  enter(500);
  look(2);
  expect(admission.callLimit).toBe(1000);
  look(1);
  expect(admission.callLimit).toBe(312);
  expect([admission.enter('call'), admission.enter('other')]).toEqual([false, true]);
  look(100);
  expect(admission.callLimit).toBe(minLimit);
});

it('a limit that is lowered already shrinks at once when a window begins late, not after a sample on time', () => {
  const { clock, admission, enter, look } = setUp({ lateMs: 40 });
  enter(500);
  look(3);
  expect(admission.callLimit).toBe(312);
  look(1);
  expect(admission.callLimit).toBe(195);
  clock.lateMs = 0;
  look(1); // Its timer was late already.
  clock.lateMs = 40;
  look(3);
  expect(admission.callLimit).toBe(134);
});

it('with fewer in flight than the minimum limit no request is rejected, for any delay of the loop', () => {
  const { admission, enter, look } = setUp({ lateMs: 5000 });
  enter(minLimit - 1);
  look(100);
  expect(admission.enter('call')).toBe(true);
});

it('requests of strangers alone show that the loop is late, and an idle router recovers after five samples, also on a slow machine', () => {
  const { clock, admission, look } = setUp({ lateMs: 40 });
  for (let i = 0; i < 3; i++) {
    admission.arrived();
    look(1);
  }
  expect([admission.isLowered, admission.callLimit]).toEqual([true, minLimit]);
  look(5);
  expect([admission.isLowered, clock.timersMs]).toEqual([false, []]);
});

it('late samples before a gap without requests do not count after it', () => {
  const { admission, look } = setUp({ lateMs: 40 });
  const samples = (count: number) => {
    for (let i = 0; i < count; i++) {
      admission.arrived();
      look(1);
    }
  };
  samples(2);
  look(1);
  samples(2);
  expect(admission.isLowered).toBe(false);
  samples(1);
  expect(admission.isLowered).toBe(true);
});

it('one sample without a request, as after a pause of the process, does not raise a lowered limit', () => {
  const { admission, enter, leave, look } = setUp({ lateMs: 40 });
  enter(500);
  look(3);
  leave(500);
  look(1);
  expect(admission.callLimit).toBe(312);
  enter(1);
  look(1);
  leave(1);
  look(2);
  expect(admission.callLimit).toBe(2 * minLimit);
});

it('a regular light load, with a gap after each sample on time, raises a lowered limit', () => {
  const { clock, admission, look } = setUp({ lateMs: 40 });
  for (let i = 0; i < 3; i++) {
    admission.arrived();
    look(1);
  }
  expect(admission.callLimit).toBe(minLimit);
  clock.lateMs = 0;
  for (let i = 0; i < 200; i++) {
    admission.arrived();
    look(2);
  }
  expect(admission.isLowered).toBe(false);
});

it('all strangers are handled until the limit is lowered, then eight per sample', () => {
  const { admission, enter, look } = setUp({ lateMs: 5000 });
  enter(1);
  const handled = () => Array.from({ length: 20 }, () => admission.admitStranger()).filter(Boolean).length;
  expect(handled()).toBe(20);
  look(3);
  expect([handled(), handled()]).toEqual([8, 0]);
  look(1);
  expect(handled()).toBe(8);
});

it('a limit that was set lower than the least one holds', () => {
  const { admission, enter, look } = setUp({ maxInFlight: 10, lateMs: 5000 });
  enter(10);
  look(100);
  expect([admission.callLimit, admission.enter('call')]).toEqual([10, false]);
});

it('one long pause among samples on time is not an overload', () => {
  const { clock, admission, enter, look } = setUp();
  enter(500);
  clock.lateMs = 900;
  look(3);
  clock.lateMs = 0;
  look(2);
  expect(admission.callLimit).toBe(1000);
});

it('the limit grows step by step while the loop is on time, and doubles when nothing is in flight', () => {
  const { clock, admission, enter, leave, look } = setUp({ lateMs: 40 });
  enter(500);
  look(6);
  clock.lateMs = 0;
  look(3);
  const low = admission.callLimit;
  look(6);
  expect(admission.callLimit).toBeGreaterThan(low);
  expect(admission.callLimit).toBeLessThan(500);
  const before = admission.callLimit;
  leave(500);
  // One gap between two bursts is not the end of an overload.
  look(1);
  expect(admission.callLimit).toBe(before);
  look(1);
  expect(admission.callLimit).toBe(2 * before);
  look(3);
  expect([admission.callLimit, clock.timersMs]).toEqual([1000, []]);
});

it('with the delay off only the number counts, and an idle router has no timer', () => {
  const { clock, admission, enter } = setUp({ maxInFlight: 2, delay: 'off' });
  expect(clock.timersMs).toEqual([]);
  expect(enter(3)).toEqual([true, true, false]);
  expect([clock.timersMs, admission.callLimit]).toEqual([[], 2]);
});

it.each([0, 1, 2, 3])(
  'three late samples lower the limit, after a pause and %i samples on time before it',
  (count) => {
    const { clock, admission, look } = setUp();
    for (let i = 0; i < count; i++) {
      admission.arrived();
      look(1);
    }
    // An idle sample ends the samples.
    if (count > 0) look(1);
    expect(clock.timersMs).toEqual([]);
    clock.lateMs = 200;
    const isLowered = [1, 2, 3].map(() => {
      admission.arrived();
      look(1);
      return admission.isLowered;
    });
    expect(isLowered).toEqual([false, false, true]);
  },
);
