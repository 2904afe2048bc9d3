import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkNode } from '../../src/cli/doctor/examine.js';
import { toFailure } from '../../src/cli/failure.js';
import { age, countdown, span } from '../../src/cli/format.js';
import { run } from '../../src/cli/index.js';
import { systemClock } from '../../src/clock.js';
import type { RunningRouter } from '../../src/main/router.js';
import { until } from '../support/until.js';
import { capture } from './capture.js';
import { startTestRouter, useStore } from './support.js';

const store = useStore();

describe('on a terminal', () => {
  let router: RunningRouter;
  beforeEach(async () => {
    router = await startTestRouter(await store.emptied());
  });
  afterEach(() => router.stop());

  async function onTerminal(args: string[], env: NodeJS.ProcessEnv = {}) {
    const screen = capture({ tty: true });
    const code = await run([...args, '--url', router.url], env, { streams: screen.streams });
    return { code, out: screen.out(), err: screen.err() };
  }

  it('colours are used unless NO_COLOR or TERM=dumb is set, and never in JSON', async () => {
    expect((await onTerminal(['status'])).out).toContain('\u001b[32mup\u001b[0m');
    expect((await onTerminal(['status'], { NO_COLOR: '1' })).out).not.toContain('\u001b');
    expect((await onTerminal(['status'], { TERM: 'dumb' })).out).not.toContain('\u001b');
    expect((await onTerminal(['status', '--json'])).out).not.toContain('\u001b');
  });

  it('drain --wait shows calls left and time, on one line that is cleared at the end', async () => {
    const call = { callSid: 'CA1', merchantId: '', provider: 'twilio', flow: 'v2', template: 't' };
    const { podName } = await router.context.router.allocate(call);
    const screen = capture({ tty: true });
    let nowMs = 0;
    const clock = { ...systemClock, monotonic: () => nowMs };
    const args = ['drain', podName, '--wait', '1m', '--url', router.url];
    const ended = run(args, { NO_COLOR: '1' }, { streams: screen.streams, clock });
    const progress = `\r\u001b[2Kdraining ${podName}: 1 call left, 0s of 1m 0s`;
    await until(() => screen.err().includes(progress), 'progress is shown');
    nowMs = 60_000;
    // It answers the drain at once, with the live call.
    await router.stop();
    expect(await ended).toBe(7);
    expect(screen.err()).toMatch(/\r\u001b\[2Ksmart-router: 1 call still live/);
  });
});

describe('texts', () => {
  it('times have at most two units', () => {
    const [s, m, h, d] = [1000, 60_000, 3_600_000, 86_400_000];
    expect([-5, 999, 42 * s, 3 * m + 5 * s, 2 * h + 14 * m + 9 * s, 3 * d + 4 * h].map(span)).toEqual([
      '0s',
      '0s',
      '42s',
      '3m 5s',
      '2h 14m',
      '3d 4h',
    ]);
    const now = Date.parse('2026-01-01T00:00:00Z');
    expect(age('2025-12-31T23:59:00Z', now)).toBe('1m 0s');
    expect(age(null, now)).toBe('-');
    expect(countdown('2026-01-01T00:15:00Z', now)).toBe('15m 0s left');
    expect(countdown('2025-12-31T23:59:57Z', now)).toBe('expired 3s ago');
  });

  it('an unexpected error is one line, also with line breaks in its message', () => {
    const failure = toFailure(new Error('first\nsecond\u0000'));
    expect(failure.message).toBe('unexpected error: first second (DEBUG=smart-router shows the stack)');
    expect(failure.exitCode).toBe(1);
    expect(toFailure('text').exitCode).toBe(1);
  });

  it('reports a Node.js version that is too old', () => {
    expect(checkNode('18.20.1')).toMatchObject({ status: 'fail', hint: 'Install Node.js 20 or newer.' });
  });
});
