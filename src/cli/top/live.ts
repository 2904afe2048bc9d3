/** `top` on a terminal: draws the state of the poller and carries out keys. */

import { ReadStream } from 'node:tty';
import { unlessAborted } from '../../clock.js';
import { FullScreen } from '../../terminal/full-screen.js';
import { readKeys } from '../../terminal/keys.js';
import type { RouterApi } from '../api.js';
import type { Cli } from '../cli.js';
import { toFailure } from '../failure.js';
import type { Drained, Undrained } from '../replies.js';
import { untilSignal } from '../signals.js';
import { type Action, newControls, type PodAction, press } from './controls.js';
import { type Frame, frame } from './frame.js';
import { Poller } from './poller.js';

/** Ages and countdowns change once a second. */
const tickMs = 1000;
/** Limits drawing when events arrive by the hundred. */
const minDrawIntervalMs = 50;

/** Resolves when a key, a signal or a closed terminal ends it. */
export async function liveTop(api: RouterApi, cli: Cli, intervalMs: number): Promise<void> {
  const { clock, output } = cli;
  const { signal: over, abort: quit, release } = untilSignal();
  const controls = newControls();
  const screen = new FullScreen(output.streams.stdout, output.hasColours, () => draw());
  const input = output.streams.stdin instanceof ReadStream ? output.streams.stdin : undefined;
  let shown: Frame | undefined;
  let cancel = () => {};
  let isPlanned = false;

  const draw = () => {
    cancel();
    isPlanned = false;
    const options = { ...screen.size, state: poller.state(), controls };
    shown = frame({ ...options, hasKeys: input !== undefined });
    screen.draw(shown.lines);
    cancel = clock.after(tickMs, draw);
  };
  const drawSoon = () => {
    if (isPlanned || over.aborted) return;
    isPlanned = true;
    cancel();
    cancel = clock.after(minDrawIntervalMs, draw);
  };
  const poller = new Poller({ api, clock, intervalMs, onChange: drawSoon });

  const carryOut = async (action: Action) => {
    if (action.do === 'quit') return quit();
    if (action.do === 'redraw') return screen.reset();
    controls.message = { text: `sending ${action.do} ${action.pod}`, isBad: false };
    controls.message = await sendPodAction(api, action.do, action.pod);
    poller.refresh();
    drawSoon();
  };
  const onKey = (key: string) => {
    const action = press(controls, key, shown?.rows ?? [], shown?.page ?? 1);
    if (action) void carryOut(action);
    if (!over.aborted) draw();
  };

  let restoreInput = () => {};
  try {
    await unlessAborted(poller.start(), over);
    if (over.aborted) return;
    screen.open();
    if (input) restoreInput = readKeys(input, onKey);
    draw();
    await unlessAborted(poller.run(over), over);
  } finally {
    cancel();
    restoreInput();
    screen.close();
    release();
  }
}

/** The result, for the bottom line. */
async function sendPodAction(
  api: RouterApi,
  action: PodAction,
  pod: string,
): Promise<{ text: string; isBad: boolean }> {
  try {
    const body = { pod_name: pod };
    const { body: done } = await api.send<Drained | Undrained>(`POST /${action}`, 'pod_name', { body });
    return { text: done.message, isBad: false };
  } catch (error) {
    return { text: toFailure(error).message, isBad: true };
  }
}
