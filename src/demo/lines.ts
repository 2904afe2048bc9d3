/** One line of the demo's log, and its format. */
import { type Colour, paint } from '../terminal/text.js';

/** The kinds of lines. Lines about one call are so frequent that the picture shows only the latest. */
const looks = {
  allocated: { style: 'green', arrow: '→', isCall: true },
  waiting: { style: 'yellow', arrow: '…', isCall: true },
  hears: { style: 'yellow', arrow: '…' },
  assigned: { style: 'green', arrow: '→', isCall: true },
  connected: { style: 'green', arrow: '→' },
  'hung up': { style: 'red', arrow: '×', isCall: true },
  expired: { style: 'red', arrow: '×', isCall: true },
  merchant: { style: 'cyan', arrow: '→', isCall: true },
  fallback: { style: 'yellow', arrow: '↘', isCall: true },
  adopted: { style: 'green', arrow: '→', isCall: true },
  released: { style: 'dim', arrow: '←', isCall: true },
  draining: { style: 'blue', arrow: ' ', isCall: true },
  drained: { style: 'blue', arrow: ' ', isCall: true },
  undrained: { style: 'blue', arrow: ' ' },
  recovered: { style: 'magenta', arrow: '↺' },
  'no pods': { style: 'red', arrow: '×', isCall: true },
  lost: { style: 'red', arrow: '×' },
  cut: { style: 'red', arrow: '×' },
  changed: { style: 'cyan', arrow: ' ' },
  other: { style: 'dim', arrow: ' ' },
  pools: { style: 'dim' },
  router: { style: 'cyan' },
  leader: { style: 'green' },
  agent: { style: 'blue' },
  roll: { style: 'yellow' },
  redis: { style: 'magenta' },
  worker: { style: 'cyan' },
  records: { style: 'magenta' },
  site: { style: 'dim' },
  api: { style: 'magenta' },
  ready: { style: 'green' },
  /** An action of the demo or of the visitor, not of the routers. */
  do: { style: 'bold' },
} as const satisfies Record<string, { style: Colour; arrow?: string; isCall?: true }>;

export type LineKind = keyof typeof looks;

export interface Line {
  at: string;
  kind: LineKind;
  /** Shown instead of the kind. */
  label?: string;
  call?: string;
  pod?: string;
  text: string;
}

const callWidth = 8;
const podWidth = 11;

export function isAboutOneCall({ kind }: Line): boolean {
  return 'isCall' in looks[kind];
}

/** `09:05:59  allocated CA-101   → gold-1      gold`, or `09:05:59  router    router-1 is up`. */
export function format({ at, kind, label = kind, call = '', pod = '', text }: Line): string {
  const look = looks[kind];
  const time = paint('dim', new Date(at).toLocaleTimeString('en-GB'));
  if (kind === 'do') return `${time}  ${paint('bold', `▸ ${text}`)}`;
  if (!('arrow' in look) || !(call || pod)) return `${time}  ${paint(look.style, label.padEnd(9))} ${text}`;
  const columns = `${label.padEnd(9)} ${column(call, callWidth)} ${look.arrow} ${column(pod, podWidth)}`;
  return `${time}  ${paint(look.style, columns)} ${text}`.trimEnd();
}

const maxColumn = 24;

/** Pads, and truncates long names: a SID may have 256 characters. */
function column(text: string, width: number): string {
  return (text.length > maxColumn ? `${text.slice(0, maxColumn - 1)}…` : text).padEnd(width);
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}

export const inSeconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
