/**
 * The picture and the help page of the demo as lines of text, for a terminal of any size. Numbers and events wrap; what
 * does not fit is cut off, except the keys.
 */
import { type Colour, clip, type Paint, plain, wrap } from '../terminal/text.js';
import { version } from '../version.js';
import { count, format, type Line } from './lines.js';
import type { KindCounts } from './records/tracker.js';
import type { Cell, CellState, View } from './view.js';

export interface FrameOptions {
  view: View;
  /** Undefined until the demo is ready. */
  url: string | undefined;
  /** The requested port, if it was in use. */
  takenPort?: number | undefined;
  elapsedMs: number;
  isStoryOn: boolean;
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
/** Blank lines are left out below this height. */
const spaciousRows = 36;
const minEvents = 3;

export function frame(options: FrameOptions): string[] {
  const { view, lines, latestCall, columns, rows, paint } = options;
  const top = [
    ...header(options),
    '',
    labelled('routers', routersLine(view, paint), paint),
    labelled('backed by', backendLine(view, paint), paint),
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
  ].filter((line) => line !== '' || rows >= spaciousRows);
  const bottom = [...(rows >= spaciousRows ? [''] : []), ...keyLines(options)];
  const above = top.slice(0, Math.max(0, rows - bottom.length - minEvents));
  const room = Math.max(minEvents, rows - above.length - bottom.length);
  const shown = lines
    .slice(-room)
    .flatMap((line) => eventLines(line, columns, paint))
    .slice(-room);
  while (shown.length < room) shown.push('');
  return [...above, ...shown, ...bottom].slice(0, rows).map((line) => clip(line, columns - 1));
}

/** Wraps a long text below its beginning. */
function eventLines(line: Line, columns: number, paint: Paint): string[] {
  const whole = format(line, plain);
  const indent = whole.length - line.text.length;
  const width = columns - 2 - indent;
  if (whole.length <= columns - 2 || width < 20) return [` ${format(line, paint)}`];
  const [first = '', ...rest] = wrap(line.text.split(' '), width);
  return [
    ` ${format({ ...line, text: first }, paint)}`,
    ...rest.map((text) => ` ${' '.repeat(indent)}${line.kind === 'do' ? paint('bold', text) : text}`),
  ];
}

function header({ url, takenPort, elapsedMs, isStoryOn, rows, paint }: FrameOptions): string[] {
  const minutes = Math.floor(elapsedMs / 60_000);
  const rest = String(Math.floor(elapsedMs / 1000) % 60).padStart(2, '0');
  const story = isStoryOn ? 'story on' : 'story off';
  const moved = takenPort === undefined ? '' : paint('yellow', ` (port ${takenPort} is in use)`);
  const where =
    url === undefined ? paint('yellow', 'starting, a few seconds') : `${paint('cyan', `${url}/`)}${moved}`;
  const idea = ` ${paint('dim', 'every live call gets a voice agent; abandoned work is recovered')}`;
  return [
    ` ${paint('bold', `Smart Router ${version}`)}   ${where}   ${paint('dim', `${minutes}:${rest}   ${story}`)}`,
    ...(rows >= spaciousRows ? [idea] : []),
  ];
}

function routersLine({ routers }: View, paint: Paint): string {
  return routers
    .map(({ name, state, leads }) => {
      if (state === 'down') return `${paint('red', '✕')} ${paint('dim', pad(`${name} ended`))}`;
      if (state === 'starting') return `${paint('dim', '·')} ${paint('dim', pad(`${name} starting`))}`;
      if (state === 'stopping') return `${paint('yellow', '□')} ${paint('dim', pad(`${name} stopping`))}`;
      return leads
        ? `${paint('green', '■')} ${paint('bold', pad(`${name} leader`))}`
        : `${paint('green', '□')} ${pad(name)}`;
    })
    .join('  ');
}

const pad = (text: string) => text.padEnd(16);

function backendLine({ storeAnswers, apiAnswers, records }: View, paint: Paint): string {
  const part = (answers: boolean, name: string) =>
    answers
      ? `${paint('green', '■')} ${pad(name)}`
      : `${paint('red', '✕')} ${paint('red', pad(`${name}: down`))}`;
  return [
    part(storeAnswers, 'Redis'),
    part(apiAnswers, 'Kubernetes API'),
    ...(records.isOpen && records.disabledReason === undefined ? [part(true, 'PostgreSQL')] : []),
  ].join('  ');
}

function poolLines({ pools }: View, paint: Paint): string[] {
  const widest = Math.max(...pools.map(({ cells }) => cells.length));
  return pools.map(({ set, cells, numbers }) => {
    const drawn = cells.map((cell) => drawCell(cell, set.calls > 1, paint)).join(' ');
    const space = '  '.repeat(widest - cells.length);
    if (!numbers) return labelled(set.name, `${drawn}${space}   ${paint('dim', 'no data')}`, paint);
    const { active_calls: calls, capacity, available } = numbers;
    const filled = capacity > 0 ? Math.round((barWidth * Math.min(calls, capacity)) / capacity) : 0;
    const bar = `${paint('green', '━'.repeat(filled))}${paint('dim', '─'.repeat(barWidth - filled))}`;
    const text = `${count(calls, 'call').padEnd(8)} ${paint('dim', `${available} of ${numbers.assigned} available`)}`;
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

function callParts({ calls }: View, paint: Paint): string[] {
  const mustBeZero = (n: number, text: string) => paint(n === 0 ? 'green' : 'red', `${n} ${text}`);
  return [
    paint('bold', `${calls.live} live`),
    ...(calls.waiting > 0 ? [paint('yellow', `${calls.waiting} waiting`)] : []),
    `${calls.served} served`,
    mustBeZero(calls.cut, 'cut'),
    mustBeZero(calls.doubled, 'given twice'),
    ...(calls.lost > 0 ? [`${calls.lost} lost with a crashed agent`] : []),
    ...(calls.busy > 0 ? [`${calls.busy} rejected, all busy`] : []),
    ...(calls.unanswered > 0 ? [`${calls.unanswered} unanswered`] : []),
  ];
}

function recordLines({ records }: View, options: FrameOptions): string[] {
  const { paint } = options;
  const { disabledReason, isOpen, sitemaps, pages, workers, stuck, twice } = records;
  if (disabledReason !== undefined)
    return [labelled('records', paint('dim', `disabled: ${disabledReason}`), paint)];
  if (!isOpen) return [labelled('records', paint('dim', 'PostgreSQL is starting'), paint)];
  const kind = ({ queued, running, done, failed, latest }: KindCounts) =>
    `${`${queued} queued  ${running} running  ${done} done  ${failed} failed`.padEnd(kindWidth)}  ${paint('dim', latest)}`;
  const zeroIsGreen = (n: number, text: string, style: Colour) =>
    paint(n === 0 ? 'green' : style, `${n} ${text}`);
  const drawn = workers.map(({ name, state, records: held }) => {
    if (state === 'down') return `${paint('red', '✕')} ${paint('dim', padWorker(`${name} ended`))}`;
    if (state === 'starting') return `${paint('dim', '·')} ${paint('dim', padWorker(`${name} starting`))}`;
    return `${paint('green', held > 0 ? '■' : '□')} ${padWorker(`${name} holds ${held}`)}`;
  });
  return [
    labelled('sitemaps', kind(sitemaps), paint),
    labelled('pages', kind(pages), paint),
    ...labelledParts(
      'workers',
      [...drawn, zeroIsGreen(stuck, 'stuck', 'yellow'), zeroIsGreen(twice, 'finished twice', 'red')],
      options,
    ),
  ];
}

const kindWidth = 42;
const padWorker = (text: string) => text.padEnd(17);

function labelledParts(label: string, parts: readonly string[], { columns, paint }: FrameOptions): string[] {
  return wrap(parts, columns - 2 - labelWidth, '  ').map((line, i) =>
    labelled(i === 0 ? label : '', line, paint),
  );
}

function labelled(label: string, text: string, paint: Paint): string {
  return ` ${paint('dim', label.padEnd(labelWidth))}${text}`;
}

function keyLines({ keys, columns, paint }: FrameOptions): string[] {
  const shown = keys.map(({ key, what }) => ` ${paint('bold', key)} ${paint('dim', what)}  `);
  return wrap(shown, columns, '');
}

/** Each state has its own shape, for terminals without colours. */
const cellLooks: Record<CellState, { style: Colour; idle: string; busy: string }> = {
  free: { style: 'green', idle: '□', busy: '■' },
  busy: { style: 'green', idle: '□', busy: '■' },
  draining: { style: 'yellow', idle: '▢', busy: '▣' },
  starting: { style: 'dim', idle: '·', busy: '·' },
  crashed: { style: 'red', idle: '✕', busy: '✕' },
  gone: { style: 'dim', idle: ' ', busy: ' ' },
};

/** A shared agent shows how many calls it has. */
export function drawCell({ state, calls }: Cell, isShared: boolean, paint: Paint): string {
  const { style, idle, busy } = cellLooks[state];
  if (calls === 0) return paint(style, idle);
  return paint(style, isShared ? String(calls) : busy);
}

export function legend(paint: Paint): string {
  const shown = (state: CellState, look: 'idle' | 'busy') =>
    paint(cellLooks[state].style, cellLooks[state][look]);
  return [
    `${shown('busy', 'busy')} busy`,
    `${shown('free', 'idle')} free`,
    `${shown('draining', 'busy')} draining`,
    `${shown('draining', 'idle')} drained`,
    `${shown('starting', 'idle')} starting`,
    `${shown('crashed', 'idle')} crashed`,
    '1 2 3 calls',
  ].join('  ');
}

const helpKeyWidth = 25;

/** The help page: keys and the meaning of the picture. */
export function helpPage({
  url,
  keys,
  columns,
  rows,
  paint,
}: Pick<FrameOptions, 'keys' | 'columns' | 'rows' | 'paint'> & { url: string }): string[] {
  const cells = keys.map(({ key, what }) => `${paint('bold', key)} ${what.padEnd(helpKeyWidth - 2)}`);
  return [
    ` ${paint('bold', 'Keys')}`,
    ...wrap(cells, columns - 4, '').map((line) => `   ${line.trimEnd()}`),
    ` ${paint('bold', 'Agents')}`,
    `   ${legend(paint)}`,
    ` ${paint('bold', 'Calls')}`,
    '   cut, given twice: router faults. Both stay 0.',
    '   lost: the agent crashed during the call. No router can prevent that.',
    '   waiting: every pod is busy; the next free one is theirs. rejected: none in time.',
    ` ${paint('bold', 'Records')}`,
    '   another-program takes pages and exits. Its rows are dated back 1 to 3 hours,',
    '   so that they count as stuck at once (the threshold is 60 minutes).',
    '   The next sweep requeues them, or you do: page Records of the console.',
    ` ${paint('bold', 'More')}`,
    `   ${url}/  the console, in a browser`,
    `   npx smart-router top --url ${url}  in another terminal`,
    ' Any key closes this page.',
  ]
    .slice(0, rows)
    .map((line) => clip(line, columns - 1));
}
