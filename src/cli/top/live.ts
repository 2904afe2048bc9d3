/** `top` on a terminal: draws what the watch sees, does what keys wish for, and gives the terminal back. */
import { ReadStream } from 'node:tty';
import { FullScreen } from '../../terminal/full-screen.js';
import { readKeys } from '../../terminal/keys.js';
import type { RouterApi } from '../api.js';
import type { Cli } from '../cli.js';
import { toFailure } from '../failure.js';
import type { Drained, Undrained } from '../replies.js';
import { unlessAborted, untilSignal } from '../signals.js';
import { type Deed, newControls, press, type Wish } from './controls.js';
import { type Frame, frame } from './frame.js';
import { Watch } from './watch.js';

/** Ages and countdowns move once a second. */
const tickMs = 1000;
/** Events may come by the hundred. */
const shortestMs = 50;

/** Resolves when the user, a signal or a closed terminal ends it. */
export async function liveTop(api: RouterApi, cli: Cli, intervalMs: number): Promise<void> {
  const { clock, screen } = cli;
  const stop = untilSignal();
  const quit = new AbortController();
  const over = AbortSignal.any([stop.signal, quit.signal]);
  const controls = newControls();
  const fullScreen = new FullScreen(screen.stdout, () => draw());
  const input = screen.stdin instanceof ReadStream ? screen.stdin : undefined;
  let shown: Frame | undefined;
  let cancel = () => {};
  let planned = false;

  const draw = () => {
    cancel();
    planned = false;
    const { columns, rows } = fullScreen.size;
    const options = { sight: watch.sight(), controls, columns, rows, paint: screen.paint };
    shown = frame({ ...options, hasKeys: input !== undefined });
    fullScreen.draw(shown.lines);
    cancel = clock.after(tickMs, draw);
  };
  const drawSoon = () => {
    if (planned || over.aborted) return;
    planned = true;
    cancel();
    cancel = clock.after(shortestMs, draw);
  };
  const watch = new Watch({ api, clock, intervalMs, onChange: drawSoon });

  const fulfil = async (wish: Wish) => {
    if (wish.do === 'quit') return quit.abort();
    if (wish.do === 'redraw') return fullScreen.reset();
    controls.message = { text: `asking the router to ${wish.do} ${wish.pod}`, isBad: false };
    controls.message = await carryOut(api, wish.do, wish.pod);
    watch.refresh();
    drawSoon();
  };
  const onKey = (key: string) => {
    const wish = press(controls, key, shown?.rows ?? [], shown?.page ?? 1);
    if (wish) void fulfil(wish);
    if (!over.aborted) draw();
  };

  let restoreInput = () => {};
  try {
    await unlessAborted(over, watch.begin());
    if (over.aborted) return;
    fullScreen.open();
    if (input) restoreInput = readKeys(input, clock, onKey);
    draw();
    await unlessAborted(over, watch.run(over));
  } finally {
    cancel();
    restoreInput();
    fullScreen.close();
    stop.release();
  }
}

/** What the router said about it, for the line at the bottom. */
async function carryOut(api: RouterApi, deed: Deed, pod: string): Promise<{ text: string; isBad: boolean }> {
  try {
    const { body } = await api.send<Drained | Undrained>(`/${deed}`, {
      method: 'POST',
      body: { pod_name: pod },
      has: 'pod_name',
    });
    return { text: body.message, isBad: false };
  } catch (error) {
    return { text: toFailure(error).message, isBad: true };
  }
}
