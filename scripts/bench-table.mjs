// Writes the figures of bench/results/*.json as one Markdown table into docs/benchmarks.md.

/**
 * @typedef {{ id: string, label: string, value: number, unit: string, target?: { atLeast: number } | { below: number },
 *   note?: string, ok: boolean }} Row
 * @typedef {{ area: string, store: string, node: string, cores: number, machine: string, load: number, quick: boolean,
 *   failed?: string[], figures: Row[] }} AreaResult
 */

const begin = '<!-- figures: written by `npm run bench` -->';
const end = '<!-- end of figures -->';

/** @param {number} value */
function number(value) {
  if (!Number.isFinite(value)) return 'none';
  if (Number.isInteger(value) || value >= 1000) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

/** @param {Row} row */
function targetOf({ target, unit }) {
  if (target === undefined) return '';
  const [word, value] = 'atLeast' in target ? ['at least', target.atLeast] : ['below', target.below];
  return `${word} ${number(value)} ${unit}`.trim();
}

/** @param {string[]} cells */
const line = (cells) => `| ${cells.map((cell) => cell.trim().replaceAll('|', '\\|')).join(' | ')} |`;

/** @param {AreaResult} result */
function rowsOf({ area, figures, failed = [] }) {
  return [
    ...figures.map((row) =>
      line([
        area,
        row.label,
        `${number(row.value)} ${row.unit}`,
        targetOf(row),
        row.target === undefined ? '' : row.ok ? 'yes' : '**no**',
        row.note ?? '',
      ]),
    ),
    ...failed.map((part) => line([area, `part \`${part}\``, 'did not finish', '', '**no**', ''])),
  ];
}

/**
 * @param {readonly string[]} areas
 * @param {readonly AreaResult[]} results
 */
export function benchTable(areas, results) {
  const [first] = results;
  if (first === undefined) return 'Not measured yet.';
  const targets = results.flatMap(({ figures }) => figures.filter(({ target }) => target !== undefined));
  const missed = targets.filter(({ ok }) => !ok).length;
  const loads = results.map(({ area, load }) => `${area} ${load.toFixed(1)}`).join(', ');
  const quick = results.filter((result) => result.quick).map(({ area }) => area);
  return [
    `${first.cores} cores of ${first.machine}; Node ${first.node.replace(/^v/, '')}, ${first.store}. Load of the machine before each area: ${loads}.`,
    ...(quick.length > 0 ? [`Short rounds (\`--quick\`), so more noise: ${quick.join(', ')}.`] : []),
    `${targets.length} figures have a target; ${missed === 0 ? 'all meet it' : `${missed} miss it`}.`,
    '',
    line(['area', 'what', 'figure', 'target', 'met', 'details']),
    '|---|---|---|---|---|---|',
    ...areas.flatMap((area) => {
      const result = results.find((one) => one.area === area);
      return result ? rowsOf(result) : [line([area, 'everything', 'no result', '', '**no**', ''])];
    }),
  ].join('\n');
}

/**
 * Returns the page with a new table.
 * @param {string} page
 * @param {string} table
 */
export function withTable(page, table) {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`docs/benchmarks.md has no ${begin} before ${end}`);
  return `${page.slice(0, from + begin.length)}\n\n${table}\n\n${page.slice(to)}`;
}
