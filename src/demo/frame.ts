/** One picture of the stage as lines of text, for a terminal of any size: what does not fit is cut off. */
import { version } from '../version.js';
import { count, format, type Line, type Paint, type Style } from './lines.js';
import type { KindCounts } from './records/book.js';
import type { Cell, CellState, View } from './view.js';

export interface FrameOptions {
  view: View;
  url: string;
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

/** Each has a shape of its own, for terminals without colours. */
const cellLooks: Record<CellState, { style: Style; idle: string; busy: string }> = {
  free: { style: 'green', idle: '□', busy: '■' },
  busy: { style: 'green', idle: '□', busy: '■' },
  draining: { style: 'yellow', idle: '▢', busy: '▣' },
  starting: { style: 'dim', idle: '·', busy: '·' },
  crashed: { style: 'red', idle: '✕', busy: '✕' },
  gone: { style: 'dim', idle: ' ', busy: ' ' },
};
const barWidth = 24;
const labelWidth = 10;
/** A terminal with fewer rows gets no empty ones. */
const roomyRows = 34;

export function frame(options: FrameOptions): string[] {
  const { view, lines, latestCall, columns, rows, paint } = options;
  const top = [
    ...header(options),
    '',
    labelled('routers', routersLine(view, paint), paint),
    labelled('backed by', behindLine(view, paint), paint),
    '',
    ...poolLines(view, paint),
    '',
    labelled('agents', rollLine(view, paint), paint),
    labelled('calls', callsLine(view, paint), paint),
    labelled('latest', latestCall ? format(latestCall, paint).replace(/^.*? {2}/, '') : '', paint),
    '',
    ...recordLines(view, paint),
    '',
  ].filter((line) => line !== '' || rows >= roomyRows);
  const bottom = [...(rows >= roomyRows ? [''] : []), ...keyLines(options)];
  const room = Math.max(3, rows - top.length - bottom.length - 1);
  const shown = lines.slice(-room).map((line) => ` ${format(line, paint)}`);
  while (shown.length < room) shown.push('');
  return [...top, ...shown, ...bottom].slice(0, rows).map((line) => clip(line, columns - 1));
}

function header({ url, elapsedMs, storyTells, paint }: FrameOptions): string[] {
  const minutes = Math.floor(elapsedMs / 60_000);
  const rest = String(Math.floor(elapsedMs / 1000) % 60).padStart(2, '0');
  const story = storyTells ? 'the story tells itself' : 'the story rests';
  return [
    ` ${paint('bold', `Smart Router ${version}`)}   ${paint('cyan', `${url}/`)}   ${paint('dim', `${minutes}:${rest}   ${story}`)}`,
    ` ${paint('dim', 'every live call gets a voice agent; whatever loses its owner comes back')}`,
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

/** A shared agent shows how many calls it has. */
function drawCell({ state, calls }: Cell, isShared: boolean, paint: Paint): string {
  const { style, idle, busy } = cellLooks[state];
  if (calls === 0) return paint(style, idle);
  return paint(style, isShared ? String(calls) : busy);
}

function rollLine({ roll: { version: wanted, done, total, isRolling } }: View, paint: Paint): string {
  const state = `version ${wanted}`;
  if (!isRolling)
    return `${state.padEnd(12)} ${paint('dim', `${done} of ${total} ready`)}   ${legend(paint)}`;
  const filled = Math.round((barWidth * done) / total);
  const bar = `${paint('yellow', '━'.repeat(filled))}${paint('dim', '─'.repeat(barWidth - filled))}`;
  return `${state.padEnd(12)} ${bar} ${paint('yellow', `rolling: ${done} of ${total}`)}`;
}

function legend(paint: Paint): string {
  const parts = [
    `${paint('green', '■')} busy`,
    `${paint('green', '□')} free`,
    `${paint('yellow', '▣')} draining`,
    `${paint('dim', '·')} starting`,
    `${paint('red', '✕')} crashed`,
  ];
  return paint('dim', ' ') + parts.join('  ');
}

function callsLine({ ledger }: View, paint: Paint): string {
  const never = (n: number, text: string) => paint(n === 0 ? 'green' : 'red', `${n} ${text}`);
  const parts = [
    paint('bold', `${ledger.live} live`),
    `${ledger.served} served`,
    never(ledger.cut, 'cut'),
    never(ledger.doubled, 'given twice'),
    ...(ledger.lost > 0 ? [`${ledger.lost} lost with a crashed agent`] : []),
    ...(ledger.busy > 0 ? [`${ledger.busy} heard a busy tone`] : []),
    ...(ledger.unanswered > 0 ? [`${ledger.unanswered} unanswered`] : []),
  ];
  return parts.join('  ');
}

function recordLines({ records }: View, paint: Paint): string[] {
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
    labelled(
      'workers',
      [...drawn, never(stuck, 'stuck', 'yellow'), never(twice, 'finished twice', 'red')].join('  '),
      paint,
    ),
  ];
}

const kindWidth = 42;
const padWorker = (text: string) => text.padEnd(17);

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
