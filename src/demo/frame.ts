/**
 * The state of the demo at one moment, and its picture and help page as lines of text, for a terminal of any size. Numbers
 * and events wrap; what does not fit is cut off, except the keys.
 */
import { type Colour, clip, paint, widthOf, wrap } from '../terminal/text.js';
import { version } from '../version.js';
import type { DemoParts } from './context.js';
import { count, format, type Line } from './lines.js';
import type { RouterStatus } from './operator.js';
import type { ProcessState } from './processes.js';
import type { KindCounts } from './records/tracker.js';
import { agentCount, sets } from './setup.js';

/** `draining`: asked to stop, with or without calls. `gone`: no pod of that name at the moment. */
type CellState = 'ready' | 'draining' | 'starting' | 'crashed' | 'gone';

interface Cell {
  state: CellState;
  calls: number;
}

export type View = ReturnType<typeof viewOf>;

export function viewOf(
  { routers, agents, counts, records, actions }: DemoParts,
  status: RouterStatus | undefined,
) {
  const { isStorePaused, isApiDown, drained } = actions.state;
  const cellOf = (name: string): Cell => {
    const state = agents.stateOf(name);
    const isDraining = state === 'terminating' || (state === 'ready' && drained.has(name));
    return { state: isDraining ? 'draining' : state, calls: agents.callsOn(name) };
  };
  return {
    routers: routers.group.all.map(({ name, state }) => ({ name, state, leads: routers.leader === name })),
    storeAnswers: !isStorePaused,
    apiAnswers: !isApiDown,
    /** The cells come from the agents, the numbers from the routers. */
    pools: sets.map((set) => ({
      set,
      cells: Array.from({ length: set.replicas }, (_, i) => cellOf(`${set.name}-${i}`)),
      numbers: status?.pools[set.pool.replace(/^pool:/, '')],
    })),
    roll: { version: agents.version, updated: agents.updated, isRolling: agents.isRolling },
    calls: counts,
    records: records.view(),
  };
}

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
}

const barWidth = 24;
const labelWidth = 10;
/** Blank lines are left out below this height. */
const spaciousRows = 36;
const minEvents = 3;

/** A blank line, or parts with a label; parts that do not fit one line wrap. */
type Row = [] | [label: string, ...parts: string[]];

export function frame(options: FrameOptions): string[] {
  const { view, lines, latestCall, keys, columns, rows } = options;
  const body: Row[] = [
    [],
    ['routers', routersText(view)],
    ['backed by', backendText(view)],
    [],
    ...poolRows(view),
    ['', legend()],
    [],
    ['agents', rollText(view)],
    ['calls', ...callParts(view)],
    ['latest', latestCall ? format(latestCall).replace(/^.*? {2}/, '') : ''],
    [],
    ...recordRows(view),
    [],
  ];
  const top = [...header(options), ...body.flatMap((row) => labelled(row, columns))].filter(
    (line) => line !== '' || rows >= spaciousRows,
  );
  const shownKeys = keys.map(({ key, what }) => ` ${paint('bold', key)} ${paint('dim', what)}  `);
  const bottom = [...(rows >= spaciousRows ? [''] : []), ...wrap(shownKeys, columns, '')];
  const above = top.slice(0, Math.max(0, rows - bottom.length - minEvents));
  const room = Math.max(minEvents, rows - above.length - bottom.length);
  const shown = lines
    .slice(-room)
    .flatMap((line) => eventLines(line, columns))
    .slice(-room);
  while (shown.length < room) shown.push('');
  return [...above, ...shown, ...bottom].slice(0, rows).map((line) => clip(line, columns - 1));
}

function labelled([label, ...parts]: Row, columns: number): string[] {
  if (label === undefined) return [''];
  return wrap(parts, columns - 2 - labelWidth, '  ').map(
    (text, i) => ` ${paint('dim', (i === 0 ? label : '').padEnd(labelWidth))}${text}`,
  );
}

/** Wraps a long text below its beginning. */
function eventLines(line: Line, columns: number): string[] {
  const whole = format(line);
  const indent = widthOf(whole) - widthOf(line.text);
  const width = columns - 2 - indent;
  if (widthOf(whole) <= columns - 2 || width < 20) return [` ${whole}`];
  const [first = '', ...rest] = wrap(line.text.split(' '), width);
  return [
    ` ${format({ ...line, text: first })}`,
    ...rest.map((text) => ` ${' '.repeat(indent)}${line.kind === 'do' ? paint('bold', text) : text}`),
  ];
}

function header({ url, takenPort, elapsedMs, isStoryOn, rows }: FrameOptions): string[] {
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

const partWidth = 17;

function mark(colour: Colour, sign: string, text: string, textColour?: Colour): string {
  return `${paint(colour, sign)} ${paint(textColour, text.padEnd(partWidth))}`;
}

const processLooks = {
  down: ['red', '✕', 'ended'],
  starting: ['dim', '·', 'starting'],
  stopping: ['yellow', '□', 'stopping'],
} as const;

/** `up`: the mark of a process that is up. */
function processMark({ name, state }: { name: string; state: ProcessState }, up: string) {
  if (state === 'up') return up;
  const [colour, sign, word] = processLooks[state];
  return mark(colour, sign, `${name} ${word}`, 'dim');
}

function routersText({ routers }: View): string {
  const drawn = routers.map((router) => {
    const { name, leads } = router;
    const up = leads ? mark('green', '■', `${name} leader`, 'bold') : mark('green', '□', name);
    return processMark(router, up);
  });
  return drawn.join('  ');
}

function backendText({ storeAnswers, apiAnswers, records }: View): string {
  const part = (answers: boolean, name: string) =>
    answers ? mark('green', '■', name) : mark('red', '✕', `${name}: down`, 'red');
  return [
    part(storeAnswers, 'Redis'),
    part(apiAnswers, 'Kubernetes API'),
    ...(records.isOpen && records.disabledReason === undefined ? [part(true, 'PostgreSQL')] : []),
  ].join('  ');
}

function poolRows({ pools }: View): Row[] {
  const widest = Math.max(...pools.map(({ cells }) => cells.length));
  return pools.map(({ set, cells, numbers }) => {
    const drawn = cells.map((cell) => drawCell(cell, set.calls > 1)).join(' ');
    const start = `${drawn}${'  '.repeat(widest - cells.length)}   `;
    if (!numbers) return [set.name, start + paint('dim', 'no data')];
    const { active_calls: calls, capacity, available, assigned } = numbers;
    const bar = barOf(capacity > 0 ? Math.min(1, calls / capacity) : 0, 'green');
    const free = paint('dim', `${available} of ${assigned} available`);
    return [set.name, `${start}${bar} ${count(calls, 'call').padEnd(8)} ${free}`];
  });
}

function rollText({ roll: { version: wanted, updated, isRolling } }: View): string {
  const state = `version ${wanted}`.padEnd(12);
  if (!isRolling) return `${state} ${paint('dim', `${updated} of ${agentCount} ready`)}`;
  const bar = barOf(updated / agentCount, 'yellow');
  return `${state} ${bar} ${paint('yellow', `rolling: ${updated} of ${agentCount}`)}`;
}

function barOf(share: number, colour: Colour): string {
  const filled = Math.round(barWidth * share);
  return `${paint(colour, '━'.repeat(filled))}${paint('dim', '─'.repeat(barWidth - filled))}`;
}

const zeroIsGreen = (n: number, text: string, otherwise: Colour) =>
  paint(n === 0 ? 'green' : otherwise, `${n} ${text}`);

function callParts({ calls }: View): string[] {
  return [
    paint('bold', `${calls.live} live`),
    ...(calls.waiting > 0 ? [paint('yellow', `${calls.waiting} waiting`)] : []),
    `${calls.served} served`,
    zeroIsGreen(calls.cut, 'cut', 'red'),
    zeroIsGreen(calls.doubled, 'given twice', 'red'),
    ...(calls.lost > 0 ? [`${calls.lost} lost with a crashed agent`] : []),
    ...(calls.busy > 0 ? [`${calls.busy} rejected, all busy`] : []),
    ...(calls.unanswered > 0 ? [`${calls.unanswered} unanswered`] : []),
  ];
}

function recordRows({ records }: View): Row[] {
  const { disabledReason, isOpen, sitemaps, pages, workers, stuck, twice } = records;
  if (disabledReason !== undefined) return [['records', paint('dim', `disabled: ${disabledReason}`)]];
  if (!isOpen) return [['records', paint('dim', 'PostgreSQL is starting')]];
  const kind = ({ queued, running, done, failed, latest }: KindCounts) =>
    `${`${queued} queued  ${running} running  ${done} done  ${failed} failed`.padEnd(kindWidth)}  ${paint('dim', latest)}`;
  const drawn = workers.map((worker) => {
    const { name, records: held } = worker;
    return processMark(worker, mark('green', held > 0 ? '■' : '□', `${name} holds ${held}`));
  });
  const stuckText = zeroIsGreen(stuck, 'stuck', 'yellow');
  return [
    ['sitemaps', kind(sitemaps)],
    ['pages', kind(pages)],
    ['workers', ...drawn, stuckText, zeroIsGreen(twice, 'finished twice', 'red')],
  ];
}

const kindWidth = 42;

/** Each state has its own shape, for terminals without colours. */
const cellLooks: Record<CellState, { style: Colour; idle: string; busy: string }> = {
  ready: { style: 'green', idle: '□', busy: '■' },
  draining: { style: 'yellow', idle: '▢', busy: '▣' },
  starting: { style: 'dim', idle: '·', busy: '·' },
  crashed: { style: 'red', idle: '✕', busy: '✕' },
  gone: { style: 'dim', idle: ' ', busy: ' ' },
};

/** A shared agent shows how many calls it has. */
export function drawCell({ state, calls }: Cell, isShared: boolean): string {
  const { style, idle, busy } = cellLooks[state];
  if (calls === 0) return paint(style, idle);
  return paint(style, isShared ? String(calls) : busy);
}

export function legend(): string {
  const shown = (state: CellState, calls: number, word: string) =>
    `${drawCell({ state, calls }, false)} ${word}`;
  return [
    shown('ready', 1, 'busy'),
    shown('ready', 0, 'free'),
    shown('draining', 1, 'draining'),
    shown('draining', 0, 'drained'),
    shown('starting', 0, 'starting'),
    shown('crashed', 0, 'crashed'),
    '1 2 3 calls',
  ].join('  ');
}

const helpKeyWidth = 25;

type HelpOptions = Pick<FrameOptions, 'keys' | 'columns' | 'rows'> & { url: string };

/** The help page: keys and the meaning of the picture. */
export function helpPage({ url, keys, columns, rows }: HelpOptions): string[] {
  const cells = keys.map(({ key, what }) => `${paint('bold', key)} ${what.padEnd(helpKeyWidth - 2)}`);
  return [
    ` ${paint('bold', 'Keys')}`,
    ...wrap(cells, columns - 4, '').map((line) => `   ${line.trimEnd()}`),
    ` ${paint('bold', 'Agents')}`,
    `   ${legend()}`,
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
