/** What the demo prints: a banner, one aligned line per event, a line about the pools, a summary at the end. */
import type { CallStore } from '../calls/store/store.js';
import { version } from '../version.js';
import { type Chronicle, type Line, type LineKind, shortName } from './chronicle.js';

type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'blue' | 'magenta' | 'cyan';

const codes: Record<Style, number> = {
  bold: 1,
  dim: 2,
  red: 31,
  green: 32,
  yellow: 33,
  blue: 34,
  magenta: 35,
  cyan: 36,
};

const looks: Record<LineKind, { style: Style; arrow: string }> = {
  allocated: { style: 'green', arrow: '→' },
  merchant: { style: 'cyan', arrow: '→' },
  fallback: { style: 'yellow', arrow: '↘' },
  released: { style: 'dim', arrow: '←' },
  draining: { style: 'blue', arrow: ' ' },
  drained: { style: 'blue', arrow: ' ' },
  undrained: { style: 'blue', arrow: ' ' },
  recovered: { style: 'magenta', arrow: '↺' },
  'no pods': { style: 'red', arrow: '×' },
  lost: { style: 'red', arrow: '×' },
  changed: { style: 'cyan', arrow: ' ' },
  other: { style: 'dim', arrow: ' ' },
};

const callWidth = 8;
const podWidth = 11;

export interface ScreenOptions {
  write: (text: string) => void;
  colours: boolean;
  /** Only the banner and the summary. */
  quiet: boolean;
}

export class Screen {
  readonly #options: ScreenOptions;

  constructor(options: ScreenOptions) {
    this.#options = options;
  }

  banner({ url, takenPort, keyVariable }: { url: string; takenPort?: number; keyVariable?: string }): void {
    const api = `${url}/api/v1`;
    const key = keyVariable === undefined ? '' : ` -H "Authorization: Bearer $${keyVariable}"`;
    const curl = (path: string, body?: string) =>
      `curl -s${key} ${api}${path}${body ? ` -H 'content-type: application/json' -d '${body}'` : ''}`;
    const dim = (text: string) => this.#paint('dim', text);
    this.#print(
      '',
      `  ${this.#paint('bold', `Smart Router ${version}`)}  every live call gets a voice agent; whatever loses its owner comes back`,
      '',
      `  Open    ${this.#paint('cyan', `${url}/`)}`,
      ...(takenPort === undefined
        ? []
        : [`          (port ${takenPort} is taken, so this is the next free one)`]),
      '  Here    12 simulated agents and their callers. A call tries gold, then standard, then',
      '          basic (shared: 3 calls each). Merchant acme has 2 agents of its own.',
      '  Try     in another terminal:',
      '',
      `    ${curl('/status')}`,
      `    ${curl('/allocate', '{"call_sid":"my-call"}')}`,
      `    ${curl('/calls/my-call')}`,
      `    ${curl('/release', '{"call_sid":"my-call"}')}`,
      `    ${curl('/drain', '{"pod_name":"standard-4","wait":"10s"}')}`,
      '',
      `  ${dim('● busy  ○ free  ◌ draining')}   Ctrl-C stops it.`,
      '',
    );
  }

  line({ at, kind, label = kind, call = '', pod = '', text }: Line): void {
    if (this.#options.quiet) return;
    const { style, arrow } = looks[kind];
    const columns = `${label.padEnd(9)} ${column(call, callWidth)} ${arrow} ${column(pod, podWidth)}`;
    this.#print(`${this.#paint('dim', timeOf(at))}  ${this.#paint(style, columns)} ${text}`.trimEnd());
  }

  /** What the demo does by itself, so that nobody takes it for the router's work. */
  say(at: string, text: string): void {
    if (!this.#options.quiet)
      this.#print(`${this.#paint('dim', timeOf(at))}  ${this.#paint('bold', `▸ ${text}`)}`);
  }

  /** The pools as the store has them at this moment. */
  async pools(at: string, store: CallStore, order: readonly string[]): Promise<void> {
    if (this.#options.quiet) return;
    const { pools, activeCalls } = await store.snapshot();
    pools.sort((a, b) => order.indexOf(a.pool) - order.indexOf(b.pool));
    const shown = await Promise.all(
      pools.map(async ({ pool, kind, activeCalls: calls, capacity }) => {
        const name = this.#paint('bold', shortName(pool));
        if (kind === 'shared') return `${name} ${calls}/${capacity}`;
        const { items } = await store.pods(pool, '0', 100);
        items.sort((a, b) => (a.podName < b.podName ? -1 : 1));
        const dots = items.map((pod) => (pod.blockedBy ? '◌' : pod.calls.length > 0 ? '●' : '○'));
        return `${name} ${dots.join('')}`;
      }),
    );
    const calls = `${activeCalls} ${activeCalls === 1 ? 'call' : 'calls'}`;
    this.#print(`${this.#paint('dim', timeOf(at))}  pools     ${shown.join('  ')}  (${calls})`);
  }

  summary({ calls, fallbacks, recovered, drained, refused }: Chronicle['counts']): void {
    const parts = [
      count(calls, 'call', 'calls'),
      count(fallbacks, 'fallback', 'fallbacks'),
      count(recovered, 'zombie recovered', 'zombies recovered'),
      count(drained, 'drain completed', 'drains completed'),
      ...(refused > 0 ? [`${refused} without a free pod`] : []),
    ];
    this.#print('', `  Stopped: ${parts.join(', ')}.`, '');
  }

  #print(...lines: string[]): void {
    this.#options.write(`${lines.join('\n')}\n`);
  }

  #paint(style: Style, text: string): string {
    return this.#options.colours ? `\u001b[${codes[style]}m${text}\u001b[0m` : text;
  }
}

function timeOf(at: string): string {
  return new Date(at).toLocaleTimeString('en-GB');
}

/** A SID may have 256 characters. */
function column(text: string, width: number): string {
  const most = 24;
  return (text.length > most ? `${text.slice(0, most - 1)}…` : text).padEnd(width);
}

function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`;
}
