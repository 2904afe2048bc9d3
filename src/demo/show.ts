/**
 * Where the demo is seen: on a terminal a picture that is drawn again and again (the stage), anywhere else one line
 * after the other (the journal). Both end with a summary.
 *
 * The journal's lines are stable: `HH:MM:SS`, two blanks, a word of at most nine letters, a blank, a sentence. The
 * words and the sentences that scripts wait for are in docs/cli.md.
 */
import type { Clock } from '../clock.js';
import { version } from '../version.js';
import type { Chronicle } from './chronicle.js';
import type { Command } from './commands.js';
import { frame } from './frame.js';
import type { Ledger } from './ledger.js';
import { count, format, isAboutOneCall, type Line, type Paint, painter } from './lines.js';
import type { RecordsView } from './records/plane.js';
import type { View } from './view.js';

export interface ShowOptions {
  write: (text: string) => void;
  colours: boolean;
  /** Set: a terminal of this size, looked at before every picture. */
  terminal: (() => { columns: number; rows: number }) | undefined;
  /** Only the banner and the summary. */
  quiet: boolean;
  clock: Clock;
}

export interface Opening {
  url: string;
  takenPort: number | undefined;
  keyVariable: string | undefined;
  commands: readonly Command[];
  view: () => View;
  storyTells: () => boolean;
}

const pictureEveryMs = 200;
const mostLines = 200;

const enter = '\u001b[?1049h\u001b[?25l\u001b[2J';
const leave = '\u001b[?1049l\u001b[?25h';

export class Show {
  readonly #options: ShowOptions;
  readonly #paint: Paint;
  readonly #lines: Line[] = [];
  readonly #sinceMs: number;
  #latestCall: Line | undefined;
  #opening: Opening | undefined;
  #cancelPicture = () => {};
  readonly #leaveStage = () => this.#options.write(leave);

  constructor(options: ShowOptions) {
    this.#options = options;
    this.#paint = painter(options.colours);
    this.#sinceMs = options.clock.monotonic();
  }

  /** A stage needs somebody who watches. */
  get isStage(): boolean {
    return this.#options.terminal !== undefined && !this.#options.quiet;
  }

  open(opening: Opening): void {
    this.#opening = opening;
    if (this.isStage) {
      this.#options.write(enter);
      // Whatever ends the process: the terminal is given back.
      process.once('exit', this.#leaveStage);
      this.#draw();
    } else this.#banner(opening);
  }

  line(line: Line): void {
    if (this.#options.quiet) return;
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
      const dots = cells.map(({ state, calls }) => {
        if (state === 'free') return '○';
        return state === 'busy' ? '●' : calls > 0 ? '◉' : '◌';
      });
      return `${name} ${dots.join('')}`;
    });
    const text = `${shown.join('  ')}  (${count(ledger.live, 'call')})`;
    this.line({ at, kind: 'other', label: 'pools', text });
    if (records.isOpen && records.leftOut === undefined)
      this.line({ at, kind: 'records', text: recordsText(records) });
  }

  close(ledger: Ledger, counts: Chronicle['counts'], records: RecordsView): void {
    this.#cancelPicture();
    if (!this.#opening) return;
    if (this.isStage) {
      process.off('exit', this.#leaveStage);
      this.#leaveStage();
    }
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
    this.#print('', `  Stopped: ${parts.join(', ')}.`, ...recordsSummary(records), '');
  }

  #draw(): void {
    const { terminal, clock, write } = this.#options;
    const opening = this.#opening;
    if (!terminal || !opening) return;
    const picture = frame({
      ...terminal(),
      view: opening.view(),
      url: opening.url,
      elapsedMs: clock.monotonic() - this.#sinceMs,
      storyTells: opening.storyTells(),
      lines: this.#lines,
      latestCall: this.#latestCall,
      keys: opening.commands,
      paint: this.#paint,
    });
    // Over the old picture, line by line: clearing it first would flicker.
    write(`\u001b[H${picture.map((line) => `${line}\u001b[K`).join('\n')}\u001b[J`);
    this.#cancelPicture = clock.after(pictureEveryMs, () => this.#draw());
  }

  #banner({ url, takenPort, keyVariable, commands }: Opening): void {
    const api = `${url}/api/v1`;
    const key = keyVariable === undefined ? '' : ` -H "Authorization: Bearer $${keyVariable}"`;
    const curl = (path: string, body?: string) =>
      `curl -s${key} ${api}${path}${body ? ` -H 'content-type: application/json' -d '${body}'` : ''}`;
    this.#print(
      '',
      `  ${this.#paint('bold', `Smart Router ${version}`)}  every live call gets a voice agent; whatever loses its owner comes back`,
      '',
      `  Open    ${this.#paint('cyan', `${url}/`)}`,
      ...(takenPort === undefined
        ? []
        : [`          (port ${takenPort} is taken, so this is the next free one)`]),
      '  Here    a simulated Kubernetes cluster with 20 voice agents, their callers, and 3 routers that are',
      '          processes of their own. A call tries gold, then standard, then basic (shared: 3 calls each).',
      '          Merchant acme has 3 agents of its own. Beside it, on a PostgreSQL of its own: 2 workers that import',
      '          the sitemaps of made-up sites and read their pages.',
      '  Do      a word and Enter (or a key, on a terminal):',
      `          ${commands.map(({ word }) => word).join(', ')}`,
      '  Try     in another terminal:',
      '',
      `    ${curl('/status')}`,
      `    ${curl('/allocate', '{"call_sid":"my-call"}')}`,
      `    ${curl('/calls/my-call')}`,
      `    ${curl('/release', '{"call_sid":"my-call"}')}`,
      `    ${curl('/drain', '{"pod_name":"standard-4","wait":"10s"}')}`,
      '',
      '  ● busy  ○ free  ◉ ending with a call  ◌ ending or starting   Ctrl-C stops it.',
      '',
    );
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
