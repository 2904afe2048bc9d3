/**
 * Where the demo is seen: on a terminal a picture that is drawn again and again (the stage), anywhere else one line
 * after the other (the journal). Both end with a summary. Headless, there is one line of JSON when it can be used.
 *
 * The journal's lines are stable: `HH:MM:SS`, two blanks, a word of at most nine letters, a blank, a sentence. The
 * words and the sentences that scripts wait for are in docs/cli.md.
 */
import type { Clock } from '../clock.js';
import { type Invitation, introduction, invitation, movedText } from './banner.js';
import { drawCell } from './cells.js';
import type { Chronicle } from './chronicle.js';
import { clip, frame } from './frame.js';
import { helpLines } from './help.js';
import type { Ledger } from './ledger.js';
import { count, format, isAboutOneCall, type Line, type Paint, painter } from './lines.js';
import type { RecordsView } from './records/plane.js';
import type { View } from './view.js';

interface Size {
  columns: number;
  rows: number;
}

export interface ShowOptions {
  write: (text: string) => void;
  colours: boolean;
  /** Set: a terminal of this size, looked at before every picture. */
  terminal: (() => Size) | undefined;
  /** Only the banner and the summary. */
  quiet: boolean;
  /** Not even these: one line of JSON with the address, for programs. */
  headless: boolean;
  clock: Clock;
}

export interface Opening extends Invitation {
  view: () => View;
  storyTells: () => boolean;
}

const pictureEveryMs = 200;
const mostLines = 200;

const enter = '\u001b[?1049h\u001b[?25l\u001b[2J';
const leave = '\u001b[?1049l\u001b[?25h';
/** Everything that can end the process. */
const endings = ['exit', 'uncaughtException', 'unhandledRejection'] as const;

export class Show {
  readonly #options: ShowOptions;
  readonly #paint: Paint;
  readonly #lines: Line[] = [];
  readonly #sinceMs: number;
  #latestCall: Line | undefined;
  #opening: Opening | undefined;
  #isReady = false;
  #isHelpShown = false;
  #isStageOpen = false;
  #cancelPicture = () => {};
  /** Before the error handler of the process prints: what it prints must be on the screen that stays. */
  readonly #leaveStage = () => {
    if (!this.#isStageOpen) return;
    this.#isStageOpen = false;
    this.#cancelPicture();
    for (const event of endings) process.off(event, this.#leaveStage);
    this.#options.write(leave);
  };

  constructor(options: ShowOptions) {
    this.#options = options;
    this.#paint = painter(options.colours);
    this.#sinceMs = options.clock.monotonic();
  }

  /** A stage needs somebody who watches. */
  get isStage(): boolean {
    const { terminal, quiet, headless } = this.#options;
    return terminal !== undefined && !quiet && !headless;
  }

  open(opening: Opening): void {
    this.#opening = opening;
    if (this.isStage) {
      this.#isStageOpen = true;
      this.#options.write(enter);
      for (const event of endings) process.prependListener(event as 'exit', this.#leaveStage);
      this.#draw();
    } else if (!this.#options.headless) this.#print(...introduction(this.#paint));
  }

  /** It answers: from here on its address is shown. */
  ready(): void {
    this.#isReady = true;
    const opening = this.#opening;
    if (this.isStage || !opening) return;
    if (this.#options.headless)
      this.#print(JSON.stringify({ ready: true, url: opening.url, pid: process.pid }));
    else this.#print(...invitation(opening, this.#paint));
  }

  line(line: Line): void {
    if (this.#options.quiet || this.#options.headless) return;
    if (!this.isStage) this.#print(format(line, this.#paint));
    else if (isAboutOneCall(line)) this.#latestCall = line;
    // The stage has them in a place of their own.
    else if (line.kind !== 'site') this.#lines.push(line);
    if (this.#lines.length > mostLines) this.#lines.shift();
  }

  /** The pools as the routers have them at this moment, and how far the records are; the stage shows them always. */
  numbers(at: string, { pools, ledger, records }: View): void {
    if (this.isStage) return;
    const shown = pools.map(({ set, cells, numbers }) => {
      const name = this.#paint('bold', set.name);
      if (!numbers) return `${name} ?`;
      if (numbers.type === 'shared') return `${name} ${numbers.active_calls}/${numbers.capacity}`;
      return `${name} ${cells.map((cell) => drawCell(cell, false, this.#paint)).join('')}`;
    });
    const text = `${shown.join('  ')}  (${count(ledger.live, 'call')})`;
    this.line({ at, kind: 'other', label: 'pools', text });
    if (records.isOpen && records.leftOut === undefined)
      this.line({ at, kind: 'records', text: recordsText(records) });
  }

  close(ledger: Ledger, counts: Chronicle['counts'], records: RecordsView): void {
    this.#cancelPicture();
    if (!this.#opening || this.#options.headless) return;
    this.#leaveStage();
    const { takenPort, url } = this.#opening;
    const parts = [
      `${count(ledger.began, 'call')}`,
      `${ledger.served} served`,
      `${ledger.cut} cut`,
      `${ledger.doubled} given twice`,
      ...(ledger.live > 0 ? [`${ledger.live} live at the end`] : []),
      ...(ledger.lost > 0 ? [`${ledger.lost} lost with a crashed agent`] : []),
      ...(ledger.busy > 0 ? [`${ledger.busy} without a free agent`] : []),
      ...(ledger.unanswered > 0 ? [`${ledger.unanswered} unanswered`] : []),
      ...(counts.fallbacks > 0 ? [count(counts.fallbacks, 'fallback')] : []),
      ...(counts.recovered > 0 ? [`${count(counts.recovered, 'zombie')} recovered`] : []),
    ];
    // On the stage the only word about it that outlives the picture.
    const moved = this.isStage && takenPort !== undefined ? [`  ${movedText(takenPort, url)}.`] : [];
    this.#print('', `  Stopped: ${parts.join(', ')}.`, ...recordsSummary(records), ...moved, '');
  }

  /** `?` opens the page, any key closes it. True if the key did that and no more. */
  help(key: string): boolean {
    if (!this.isStage) return false;
    const wasShown = this.#isHelpShown;
    this.#isHelpShown = !wasShown && key === '?';
    if (wasShown !== this.#isHelpShown) this.#draw();
    return key === '?';
  }

  #draw(): void {
    this.#cancelPicture();
    const { terminal, clock, write } = this.#options;
    const opening = this.#opening;
    if (!terminal || !opening || !this.#isStageOpen) return;
    const picture = this.#isHelpShown
      ? this.#helpPage(opening, terminal())
      : this.#picture(opening, terminal());
    // Over the old picture, line by line: clearing it first would flicker.
    write(`\u001b[H${picture.map((line) => `${line}\u001b[K`).join('\n')}\u001b[J`);
    this.#cancelPicture = clock.after(pictureEveryMs, () => this.#draw(), { unref: true });
  }

  #helpPage({ url, commands }: Opening, { columns, rows }: Size): string[] {
    return helpLines({ keys: commands, url, columns, paint: this.#paint })
      .slice(0, rows)
      .map((line) => clip(line, columns - 1));
  }

  #picture(opening: Opening, size: Size): string[] {
    const { clock } = this.#options;
    return frame({
      ...size,
      view: opening.view(),
      url: this.#isReady ? opening.url : undefined,
      takenPort: opening.takenPort,
      elapsedMs: clock.monotonic() - this.#sinceMs,
      storyTells: opening.storyTells(),
      lines: this.#lines,
      latestCall: this.#latestCall,
      keys: opening.commands,
      paint: this.#paint,
    });
  }

  #print(...lines: string[]): void {
    this.#options.write(`${lines.join('\n')}\n`);
  }
}

function recordsText({ sitemaps, pages, stuck, twice }: RecordsView): string {
  const parts = Object.entries({ sitemaps, pages }).map(
    ([name, { queued, running, done, failed }]) =>
      `${name} ${queued} queued ${running} running ${done} done ${failed} failed`,
  );
  return [...parts, `${stuck} stuck`, `${twice} finished twice`].join(' · ');
}

function recordsSummary({ sitemaps, pages, twice, returned, kills }: RecordsView): string[] {
  const done = sitemaps.done + pages.done;
  const failed = sitemaps.failed + pages.failed;
  if (done + failed === 0) return [];
  const parts = [
    `${count(sitemaps.done, 'sitemap')} imported`,
    `${count(pages.done, 'page')} curated`,
    `${failed} failed`,
    `${twice} finished twice`,
    ...(kills > 0 ? [`${returned} came back from ${count(kills, 'killed worker')}`] : []),
  ];
  return [`  Records: ${parts.join(', ')}.`];
}
