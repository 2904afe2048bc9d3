/** The page behind `?`: what the keys do and what the picture shows. */
import { legend } from './cells.js';
import type { Paint } from './lines.js';

export interface HelpOptions {
  keys: readonly { key: string; what: string }[];
  url: string;
  columns: number;
  paint: Paint;
}

const keyWidth = 25;

export function helpLines({ keys, url, columns, paint }: HelpOptions): string[] {
  const perLine = Math.max(1, Math.floor((columns - 4) / keyWidth));
  const cells = keys.map(({ key, what }) => `${paint('bold', key)} ${what.padEnd(keyWidth - 2)}`);
  const rows = Array.from({ length: Math.ceil(cells.length / perLine) }, (_, i) =>
    cells.slice(i * perLine, (i + 1) * perLine),
  );
  return [
    ` ${paint('bold', 'Keys')}`,
    ...rows.map((row) => `   ${row.join('').trimEnd()}`),
    ` ${paint('bold', 'Agents')}`,
    `   ${legend(paint)}`,
    ` ${paint('bold', 'Calls')}`,
    '   cut, given twice: a fault of the routers. Both stay 0.',
    '   lost: the agent crashed with the call. No router can prevent that.',
    '   heard a busy tone: every pod of the chain was busy.',
    ` ${paint('bold', 'Records')}`,
    '   another-program takes pages and dies. Its rows are dated back 1 to 3 hours,',
    '   so that they count as stuck at once (the threshold is 60 minutes).',
    '   The next sweep requeues them, or you do: page Records of the console.',
    ` ${paint('bold', 'More')}`,
    `   ${url}/  the console, in a browser`,
    `   npx smart-router top --url ${url}  in another terminal`,
    ' Any key closes this page.',
  ];
}
