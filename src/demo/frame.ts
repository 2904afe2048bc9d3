/**
 * The state of the demo at one moment, and its picture and help page as lines of text, for a terminal of any size. Numbers
 * and events wrap; what does not fit is cut off, except the keys.
 */
import { type Colour, clip, type Paint, plain, wrap } from '../terminal/text.js';
import { version } from '../version.js';
import type { Actions, ActionsOptions } from './actions.js';
import type { CallCounts } from './callers.js';
import { count, format, type Line } from './lines.js';
import type { PoolNumbers, RouterStatus } from './operator.js';
import type { ProcessState } from './processes.js';
import type { RecordsView } from './records/plane.js';
import type { KindCounts } from './records/tracker.js';
import { type AgentSet, agentCount, sets } from './setup.js';

/** `draining`: asked to stop, with or without calls. `gone`: no pod of that name at the moment. */
type CellState = 'free' | 'busy' | 'draining' | 'starting' | 'crashed' | 'gone';

interface Cell {
  state: CellState;
  calls: number;
}

export interface View {
  routers: { name: string; state: ProcessState; leads: boolean }[];
  storeAnswers: boolean;
  apiAnswers: boolean;
  /** The cells come from the agents, the numbers from the routers. */
  pools: { set: AgentSet; cells: Cell[]; numbers: PoolNumbers | undefined }[];
  roll: { version: number; done: number; total: number; isRolling: boolean };
  calls: CallCounts;
  records: RecordsView;
}

type ViewSources = { actions: Actions } & Pick<
  ActionsOptions,
  'routers' | 'monitor' | 'agents' | 'fleet' | 'counts' | 'records'
>;

export function viewOf(
  { routers, monitor, agents, fleet, actions, counts, records }: ViewSources,
  status: RouterStatus | undefined,
): View {
  const cellOf = (name: string): Cell => {
    const calls = agents.callsOn(name);
    const state = monitor.agent(name)?.state ?? 'gone';
    if (state === 'ready' && actions.isDrained(name)) return { state: 'draining', calls };
    if (state === 'ready') return { state: calls > 0 ? 'busy' : 'free', calls };
    return { state: state === 'terminating' ? 'draining' : state, calls };
  };
  return {
    routers: routers.group.all.map(({ name, state }) => ({ name, state, leads: monitor.leader === name })),
    storeAnswers: !actions.isStorePaused,
    apiAnswers: !actions.isApiDown,
    pools: sets.map((set) => ({
      set,
      cells: Array.from({ length: set.replicas }, (_, i) => cellOf(`${set.name}-${i}`)),
      numbers: status?.pools[set.pool.replace(/^pool:/, '')],
    })),
    roll: { version: fleet.version, done: fleet.updated, total: agentCount, isRolling: fleet.isRolling },
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
  const drawn = routers.map(({ name, state, leads }) => {
    const up = leads
      ? `${paint('green', '■')} ${paint('bold', `${name} leader`.padEnd(partWidth))}`
      : `${paint('green', '□')} ${name.padEnd(partWidth)}`;
    return processCell(name, state, paint) ?? up;
  });
  return drawn.join('  ');
}

const partWidth = 17;

/** Undefined for a process that is up. */
function processCell(name: string, state: ProcessState, paint: Paint): string | undefined {
  if (state === 'up') return undefined;
  const [colour, sign, word] = {
    down: ['red', '✕', 'ended'] as const,
    starting: ['dim', '·', 'starting'] as const,
    stopping: ['yellow', '□', 'stopping'] as const,
  }[state];
  return `${paint(colour, sign)} ${paint('dim', `${name} ${word}`.padEnd(partWidth))}`;
}

function backendLine({ storeAnswers, apiAnswers, records }: View, paint: Paint): string {
  const part = (answers: boolean, name: string) =>
    answers
      ? `${paint('green', '■')} ${name.padEnd(partWidth)}`
      : `${paint('red', '✕')} ${paint('red', `${name}: down`.padEnd(partWidth))}`;
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
    const bar = barOf(capacity > 0 ? Math.min(1, calls / capacity) : 0, 'green', paint);
    const text = `${count(calls, 'call').padEnd(8)} ${paint('dim', `${available} of ${numbers.assigned} available`)}`;
    return labelled(set.name, `${drawn}${space}   ${bar} ${text}`, paint);
  });
}

function rollLine({ roll: { version: wanted, done, total, isRolling } }: View, paint: Paint): string {
  const state = `version ${wanted}`;
  if (!isRolling) return `${state.padEnd(12)} ${paint('dim', `${done} of ${total} ready`)}`;
  const bar = barOf(done / total, 'yellow', paint);
  return `${state.padEnd(12)} ${bar} ${paint('yellow', `rolling: ${done} of ${total}`)}`;
}

function barOf(share: number, colour: Colour, paint: Paint): string {
  const filled = Math.round(barWidth * share);
  return `${paint(colour, '━'.repeat(filled))}${paint('dim', '─'.repeat(barWidth - filled))}`;
}

const zeroIsGreen = (n: number, text: string, otherwise: Colour, paint: Paint) =>
  paint(n === 0 ? 'green' : otherwise, `${n} ${text}`);

function callParts({ calls }: View, paint: Paint): string[] {
  return [
    paint('bold', `${calls.live} live`),
    ...(calls.waiting > 0 ? [paint('yellow', `${calls.waiting} waiting`)] : []),
    `${calls.served} served`,
    zeroIsGreen(calls.cut, 'cut', 'red', paint),
    zeroIsGreen(calls.doubled, 'given twice', 'red', paint),
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
  const drawn = workers.map(({ name, state, records: held }) => {
    const up = `${paint('green', held > 0 ? '■' : '□')} ${`${name} holds ${held}`.padEnd(partWidth)}`;
    return processCell(name, state, paint) ?? up;
  });
  return [
    labelled('sitemaps', kind(sitemaps), paint),
    labelled('pages', kind(pages), paint),
    ...labelledParts(
      'workers',
      [
        ...drawn,
        zeroIsGreen(stuck, 'stuck', 'yellow', paint),
        zeroIsGreen(twice, 'finished twice', 'red', paint),
      ],
      options,
    ),
  ];
}

const kindWidth = 42;

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
