/**
 * One picture of the stage as lines of text, for a terminal of any size. Numbers and what has happened go on in a
 * second line where one is too short; what does not fit even then is cut off, and the keys never are.
 */
import { version } from '../version.js';
import { drawCell, legend } from './cells.js';
import { count, format, type Line, type Paint, type Style } from './lines.js';
import type { KindCounts } from './records/book.js';
import type { View } from './view.js';

export interface FrameOptions {
  view: View;
  /** Undefined while it does not answer yet. */
  url: string | undefined;
  /** The port that was asked for and is in use. */
  takenPort?: number | undefined;
  elapsedMs: number;
  storyTells: boolean;
  /** Newest last. */
  lines: readonly Line[];
  latestCall: Line | undefined;
  keys: readonly { key: string; what: string }[];
  columns: number;
  rows: number;
  paint: Paint;
}

const barWidth = 24;
const labelWidth = 10;
/** A terminal with fewer rows gets no empty ones. */
const roomyRows = 36;
/** Of what happened, at least. */
const leastEvents = 3;

export function frame(options: FrameOptions): string[] {
  const { view, lines, latestCall, columns, rows, paint } = options;
  const top = [
    ...header(options),
    '',
    labelled('routers', routersLine(view, paint), paint),
    labelled('backed by', behindLine(view, paint), paint),
    '',
    ...poolLines(view, paint),
    labelled('', legend(paint), paint),
    '',
    labelled('agents', rollLine(view, paint), paint),
    ...labelledParts('calls', callParts(view, paint), options),
    labelled('latest', latestCall ? format(latestCall, paint).replace(/^.*? {2}/, '') : '', paint),
    '',
    ...recordLines(view, options),
    '',
  ].filter((line) => line !== '' || rows >= roomyRows);
  const bottom = [...(rows >= roomyRows ? [''] : []), ...keyLines(options)];
  const above = top.slice(0, Math.max(0, rows - bottom.length - leastEvents));
  const room = Math.max(leastEvents, rows - above.length - bottom.length);
  const shown = lines
    .slice(-room)
    .flatMap((line) => eventLines(line, columns, paint))
    .slice(-room);
  while (shown.length < room) shown.push('');
  return [...above, ...shown, ...bottom].slice(0, rows).map((line) => clip(line, columns - 1));
}

/** A sentence that is too long goes on below its beginning. */
function eventLines(line: Line, columns: number, paint: Paint): string[] {
  const plain: Paint = (_, text) => text;
  const whole = format(line, plain);
  const indent = whole.length - line.text.length;
  const width = columns - 2 - indent;
  if (whole.length <= columns - 2 || width < 20) return [` ${format(line, paint)}`];
  const [first = '', ...rest] = folded(line.text, width);
  return [
    ` ${format({ ...line, text: first }, paint)}`,
    ...rest.map((text) => ` ${' '.repeat(indent)}${line.kind === 'do' ? paint('bold', text) : text}`),
  ];
}

function folded(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width) lines[lines.length - 1] += ` ${word}`;
    else lines.push(word);
  }
  return lines;
}

function header({ url, takenPort, elapsedMs, storyTells, rows, paint }: FrameOptions): string[] {
  const minutes = Math.floor(elapsedMs / 60_000);
  const rest = String(Math.floor(elapsedMs / 1000) % 60).padStart(2, '0');
  const story = storyTells ? 'the story tells itself' : 'the story rests';
  const moved = takenPort === undefined ? '' : paint('yellow', ` (port ${takenPort} is in use)`);
  const where =
    url === undefined ? paint('yellow', 'starts: a few seconds') : `${paint('cyan', `${url}/`)}${moved}`;
  const idea = ` ${paint('dim', 'every live call gets a voice agent; whatever loses its owner comes back')}`;
  return [
    ` ${paint('bold', `Smart Router ${version}`)}   ${where}   ${paint('dim', `${minutes}:${rest}   ${story}`)}`,
    ...(rows >= roomyRows ? [idea] : []),
  ];
}

function routersLine({ routers }: View, paint: Paint): string {
  return routers
    .map(({ name, state, leads }) => {
      if (state === 'down') return `${paint('red', '✕')} ${paint('dim', pad(`${name} ended`))}`;
      if (state === 'starting') return `${paint('dim', '·')} ${paint('dim', pad(`${name} starts`))}`;
      if (state === 'stopping') return `${paint('yellow', '□')} ${paint('dim', pad(`${name} stops`))}`;
      return leads
        ? `${paint('green', '■')} ${paint('bold', pad(`${name} leads`))}`
        : `${paint('green', '□')} ${pad(name)}`;
    })
    .join('  ');
}

const pad = (text: string) => text.padEnd(16);

function behindLine({ storeAnswers, apiAnswers, records }: View, paint: Paint): string {
  const part = (answers: boolean, name: string) =>
    answers
      ? `${paint('green', '■')} ${pad(name)}`
      : `${paint('red', '✕')} ${paint('red', pad(`${name}: silent`))}`;
  return [
    part(storeAnswers, 'Redis'),
    part(apiAnswers, 'Kubernetes API'),
    ...(records.isOpen && records.leftOut === undefined ? [part(true, 'PostgreSQL')] : []),
  ].join('  ');
}

function poolLines({ pools }: View, paint: Paint): string[] {
  const widest = Math.max(...pools.map(({ cells }) => cells.length));
  return pools.map(({ set, cells, numbers }) => {
    const drawn = cells.map((cell) => drawCell(cell, set.calls > 1, paint)).join(' ');
    const space = '  '.repeat(widest - cells.length);
    if (!numbers) return labelled(set.name, `${drawn}${space}   ${paint('dim', 'no answer')}`, paint);
    const { active_calls: calls, capacity, available } = numbers;
    const filled = capacity > 0 ? Math.round((barWidth * Math.min(calls, capacity)) / capacity) : 0;
    const bar = `${paint('green', '━'.repeat(filled))}${paint('dim', '─'.repeat(barWidth - filled))}`;
    const text = `${count(calls, 'call').padEnd(8)} ${paint('dim', `${available} of ${numbers.assigned} take more`)}`;
    return labelled(set.name, `${drawn}${space}   ${bar} ${text}`, paint);
  });
}

function rollLine({ roll: { version: wanted, done, total, isRolling } }: View, paint: Paint): string {
  const state = `version ${wanted}`;
  if (!isRolling) return `${state.padEnd(12)} ${paint('dim', `${done} of ${total} ready`)}`;
  const filled = Math.round((barWidth * done) / total);
  const bar = `${paint('yellow', '━'.repeat(filled))}${paint('dim', '─'.repeat(barWidth - filled))}`;
  return `${state.padEnd(12)} ${bar} ${paint('yellow', `rolling: ${done} of ${total}`)}`;
}

function callParts({ ledger }: View, paint: Paint): string[] {
  const never = (n: number, text: string) => paint(n === 0 ? 'green' : 'red', `${n} ${text}`);
  return [
    paint('bold', `${ledger.live} live`),
    `${ledger.served} served`,
    never(ledger.cut, 'cut'),
    never(ledger.doubled, 'given twice'),
    ...(ledger.lost > 0 ? [`${ledger.lost} lost with a crashed agent`] : []),
    ...(ledger.busy > 0 ? [`${ledger.busy} heard a busy tone`] : []),
    ...(ledger.unanswered > 0 ? [`${ledger.unanswered} unanswered`] : []),
  ];
}

function recordLines({ records }: View, options: FrameOptions): string[] {
  const { paint } = options;
  const { leftOut, isOpen, sitemaps, pages, workers, stuck, twice } = records;
  if (leftOut !== undefined) return [labelled('records', paint('dim', `left out: ${leftOut}`), paint)];
  if (!isOpen) return [labelled('records', paint('dim', 'PostgreSQL starts'), paint)];
  const kind = ({ queued, running, done, failed, latest }: KindCounts) =>
    `${`${queued} queued  ${running} running  ${done} done  ${failed} failed`.padEnd(kindWidth)}  ${paint('dim', latest)}`;
  const never = (n: number, text: string, style: Style) => paint(n === 0 ? 'green' : style, `${n} ${text}`);
  const drawn = workers.map(({ name, state, records: held }) => {
    if (state === 'down') return `${paint('red', '✕')} ${paint('dim', padWorker(`${name} ended`))}`;
    if (state === 'starting') return `${paint('dim', '·')} ${paint('dim', padWorker(`${name} starts`))}`;
    return `${paint('green', held > 0 ? '■' : '□')} ${padWorker(`${name} holds ${held}`)}`;
  });
  return [
    labelled('sitemaps', kind(sitemaps), paint),
    labelled('pages', kind(pages), paint),
    ...labelledParts(
      'workers',
      [...drawn, never(stuck, 'stuck', 'yellow'), never(twice, 'finished twice', 'red')],
      options,
    ),
  ];
}

const kindWidth = 42;
const padWorker = (text: string) => text.padEnd(17);

/** In as many lines as it takes. */
function labelledParts(label: string, parts: readonly string[], { columns, paint }: FrameOptions): string[] {
  const room = columns - 2 - labelWidth;
  const lines: string[] = [];
  for (const part of parts) {
    const last = lines.at(-1);
    if (last !== undefined && seenWidth(last) + 2 + seenWidth(part) <= room)
      lines[lines.length - 1] += `  ${part}`;
    else lines.push(part);
  }
  return lines.map((line, i) => labelled(i === 0 ? label : '', line, paint));
}

const seenWidth = (text: string) => [...text.replaceAll(/\u001b\[\d+m/g, '')].length;

function labelled(label: string, text: string, paint: Paint): string {
  return ` ${paint('dim', label.padEnd(labelWidth))}${text}`;
}

function keyLines({ keys, columns, paint }: FrameOptions): string[] {
  const lines: string[] = [];
  let line = '';
  let width = 0;
  for (const { key, what } of keys) {
    const needed = key.length + what.length + 4;
    if (width + needed > columns && line !== '') {
      lines.push(line);
      line = '';
      width = 0;
    }
    line += ` ${paint('bold', key)} ${paint('dim', what)}  `;
    width += needed;
  }
  return [...lines, line];
}

/** By what is seen: escape sequences take no room. */
export function clip(line: string, columns: number): string {
  let room = columns;
  let clipped = '';
  for (const [part] of line.matchAll(/\u001b\[\d+m|[^\u001b]/gu)) {
    if (part.startsWith('\u001b')) clipped += part;
    else if (room > 0) {
      clipped += part;
      room -= 1;
    }
  }
  return clipped;
}
