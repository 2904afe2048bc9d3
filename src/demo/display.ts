/**
 * The output of the demo: a full-screen picture on a terminal, lines elsewhere. Both end with a summary.
 *
 * The format of the lines is stable: `HH:MM:SS`, two blanks, a word of at most nine letters, a blank, a sentence.
 * docs/cli.md lists the words and the sentences that scripts may wait for.
 */
import type { Clock } from '../clock.js';
import { FullScreen } from '../terminal/full-screen.js';
import { type OutStream, paint, withoutColours, wrap } from '../terminal/text.js';
import { version } from '../version.js';
import type { Command } from './actions.js';
import type { DemoContext } from './context.js';
import type { EventLog } from './event-log.js';
import { drawCell, frame, helpPage, legend, type View } from './frame.js';
import { count, format, isAboutOneCall, type Line } from './lines.js';
import type { RecordsView } from './records/plane.js';

export interface DisplayOptions {
  out: OutStream;
  hasColours: boolean;
  /** `quiet`: only the banner and the summary. `headless`: only one line of JSON when the demo is ready, for programs. */
  mode: 'picture' | 'lines' | 'quiet' | 'headless';
  clock: Clock;
}

export interface Content {
  url: string;
  takenPort: number | undefined;
  /** The variable that holds the API key, if one is needed. */
  keyVariable: string | undefined;
  commands: readonly Command[];
  view: () => View;
  isStoryOn: () => boolean;
}

const pictureIntervalMs = 200;
const maxLines = 200;

export class Display {
  readonly #screen: FullScreen;
  readonly #lines: Line[] = [];
  readonly #sinceMs: number;
  #latestCall: Line | undefined;
  #content: Content | undefined;
  #isReady = false;
  #isHelpShown = false;
  #cancelPicture = () => {};

  constructor(private readonly options: DisplayOptions) {
    this.#screen = new FullScreen(options.out, options.hasColours, () => this.#draw());
    this.#sinceMs = options.clock.monotonic();
  }

  open(content: Content): void {
    this.#content = content;
    const { mode } = this.options;
    if (mode === 'picture') {
      this.#screen.open();
      this.#draw();
    } else if (mode !== 'headless') this.#print(...introduction());
  }

  /** Shows the address: the demo now answers there. */
  ready(): void {
    this.#isReady = true;
    const { mode } = this.options;
    const content = this.#content;
    if (mode === 'picture' || !content) return;
    if (mode === 'headless') this.#print(JSON.stringify({ ready: true, url: content.url, pid: process.pid }));
    else this.#print(...usage(content));
  }

  line(line: Line): void {
    const { mode } = this.options;
    if (mode === 'lines') this.#print(format(line));
    if (mode !== 'picture') return;
    if (isAboutOneCall(line)) this.#latestCall = line;
    // The picture shows sites elsewhere.
    else if (line.kind !== 'site') this.#lines.push(line);
    if (this.#lines.length > maxLines) this.#lines.shift();
  }

  /** Prints pools and records; the picture always shows them. */
  numbers(log: DemoContext['log']): void {
    const { mode } = this.options;
    if (mode === 'picture' || !this.#content) return;
    const { pools, calls, records } = this.#content.view();
    const shown = pools.map(({ set, cells, numbers }) => {
      const name = paint('bold', set.name);
      if (!numbers) return `${name} ?`;
      if (numbers.type === 'shared') return `${name} ${numbers.active_calls}/${numbers.capacity}`;
      return `${name} ${cells.map((cell) => drawCell(cell, false)).join('')}`;
    });
    log('pools', `${shown.join('  ')}  (${count(calls.live, 'call')})`);
    if (records.isOpen && records.disabledReason === undefined) log('records', recordsText(records));
  }

  close(counts: EventLog['counts']): void {
    this.#cancelPicture();
    if (!this.#content || this.options.mode === 'headless') return;
    this.#screen.close();
    const { takenPort, url, view } = this.#content;
    const { calls, records } = view();
    const parts = [
      count(calls.started, 'call'),
      `${calls.served} served`,
      `${calls.cut} cut`,
      `${calls.doubled} given twice`,
      ...(calls.live > 0 ? [`${calls.live} live at the end`] : []),
      ...(calls.lost > 0 ? [`${calls.lost} lost with a crashed agent`] : []),
      ...(calls.waited > 0 ? [`${calls.waited} after a wait`] : []),
      ...(calls.busy > 0 ? [`${calls.busy} without a free agent`] : []),
      ...(calls.unanswered > 0 ? [`${calls.unanswered} unanswered`] : []),
      ...(counts.fallbacks > 0 ? [count(counts.fallbacks, 'fallback')] : []),
      ...(counts.recovered > 0 ? [`${count(counts.recovered, 'zombie')} recovered`] : []),
    ];
    // Lines have printed it at the start.
    const isNew = this.options.mode === 'picture' && takenPort !== undefined;
    const moved = isNew ? [`  ${movedText(takenPort, url)}.`] : [];
    this.#print('', `  Stopped: ${parts.join(', ')}.`, ...recordsSummary(records), ...moved, '');
  }

  /** `?` opens the help page, any key closes it. True if the key has no other effect. */
  help(key: string): boolean {
    if (this.options.mode !== 'picture') return false;
    const wasShown = this.#isHelpShown;
    this.#isHelpShown = !wasShown && key === '?';
    if (wasShown !== this.#isHelpShown) this.#draw();
    return key === '?';
  }

  #draw(): void {
    this.#cancelPicture();
    const { clock } = this.options;
    const content = this.#content;
    if (!content) return;
    const { url, takenPort, commands: keys } = content;
    const page = { ...this.#screen.size, keys };
    const lines = this.#isHelpShown
      ? helpPage({ ...page, url })
      : frame({
          ...page,
          view: content.view(),
          url: this.#isReady ? url : undefined,
          takenPort,
          elapsedMs: clock.monotonic() - this.#sinceMs,
          isStoryOn: content.isStoryOn(),
          lines: this.#lines,
          latestCall: this.#latestCall,
        });
    this.#screen.draw(lines);
    this.#cancelPicture = clock.after(pictureIntervalMs, () => this.#draw(), { unref: true });
  }

  #print(...lines: string[]): void {
    const { out, hasColours } = this.options;
    const text = `${lines.join('\n')}\n`;
    out.write(hasColours ? text : withoutColours(text));
  }
}

function recordsText({ sitemaps, pages, stuck, twice }: RecordsView): string {
  const parts = Object.entries({ sitemaps, pages }).map(
    ([name, { queued, running, done, failed }]) =>
      `${name} ${queued} queued ${running} running ${done} done ${failed} failed`,
  );
  return [...parts, `${stuck} stuck`, `${twice} finished twice`].join(' · ');
}

function recordsSummary({ sitemaps, pages, twice, requeued, kills }: RecordsView): string[] {
  const done = sitemaps.done + pages.done;
  const failed = sitemaps.failed + pages.failed;
  if (done + failed === 0) return [];
  const parts = [
    `${count(sitemaps.done, 'sitemap')} imported`,
    `${count(pages.done, 'page')} curated`,
    `${failed} failed`,
    `${twice} finished twice`,
    ...(kills > 0 ? [`${requeued} requeued from ${count(kills, 'killed worker')}`] : []),
  ];
  return [`  Records: ${parts.join(', ')}.`];
}

const movedText = (takenPort: number, url: string) =>
  `Port ${takenPort} is in use, so the demo listens at ${url}/`;

export function introduction(): string[] {
  return [
    '',
    `  ${paint('bold', `Smart Router ${version}`)}  every live call gets a voice agent; abandoned work is recovered`,
    '',
    '  Here    a simulated Kubernetes cluster with 20 voice agents, their callers, and',
    '          3 router processes. A call tries gold, then standard, then basic (shared:',
    '          3 calls each). Merchants acme and nova have their own agents; acme falls',
    '          back to standard, nova has no fallback. The demo also runs PostgreSQL:',
    '          2 workers and the routers import the sitemaps of made-up sites and read',
    '          their pages.',
    `  Agents  ${legend()}`,
    '',
    '  Starting, a few seconds.',
    '',
  ];
}

function usage({ url, takenPort, keyVariable, commands }: Content): string[] {
  const api = `${url}/api/v1`;
  const key = keyVariable === undefined ? '' : ` -H "Authorization: Bearer $${keyVariable}"`;
  const curl = (path: string, body?: string) =>
    `curl -s${key} ${api}${path}${body ? ` -H 'content-type: application/json' -d '${body}'` : ''}`;
  return [
    '',
    `  Open    ${paint('cyan', `${url}/`)}`,
    ...(takenPort === undefined ? [] : [`          ${movedText(takenPort, url)}`]),
    '  Do      type a command and Enter; Ctrl-C stops the demo:',
    ...wrap(
      commands.map(({ word }, i) => (i === commands.length - 1 ? word : `${word},`)),
      68,
    ).map((line) => `          ${line}`),
    '  Try     in another terminal:',
    '',
    `    ${curl('/status')}`,
    `    ${curl('/allocate', '{"call_sid":"my-call"}')}`,
    `    ${curl('/calls/my-call')}`,
    `    ${curl('/release', '{"call_sid":"my-call"}')}`,
    `    ${curl('/drain', '{"pod_name":"standard-3","wait":"10s"}')}`,
    // Works in a clone and with an installed package; elsewhere npx would ask the registry.
    `    npx smart-router top --url ${url}`,
    '',
  ];
}
