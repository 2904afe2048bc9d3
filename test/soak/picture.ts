/** The picture of a soak: one small chart per group of series, from zero, for light and dark pages. */
import { charts } from './definitions.js';
import { formatted, type Header, type Row, type Sample } from './series.js';

const columns = 3;
const cell = { width: 380, height: 196 };
const plot = { left: 62, top: 58, width: 300, height: 104 };
const margin = { left: 14, top: 62, bottom: 14 };
const maxPoints = 300;

const style = `
  svg { --page: #ffffff; --text: #1f2328; --quiet: #59636e; --line: #d1d9e0; --bad: #b3261e;
        --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --text: #e6edf3; --quiet: #9198a1; --line: #30363d; --bad: #ff7b72;
          --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; }
  }
  text { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: var(--quiet); }
  .page { fill: var(--page); } .title { font-weight: 600; font-size: 13px; fill: var(--text); }
  .head { font-weight: 600; font-size: 18px; fill: var(--text); }
  .axis { stroke: var(--line); } .bad { fill: var(--bad); font-weight: 600; }
  polyline { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
  ${[0, 1, 2, 3].map((n) => `.c${n} { fill: var(--c${n}); } polyline.c${n} { fill: none; stroke: var(--c${n}); }`).join('\n  ')}
`;

export function pictureOf(header: Header, samples: readonly Sample[], rows: readonly Row[]): string {
  const verdicts = new Map(rows.map(({ definition, verdict }) => [definition.key, verdict]));
  const seconds = samples.at(-1)?.seconds ?? 0;
  const width = 2 * margin.left + columns * cell.width;
  const height = margin.top + Math.ceil(charts.length / columns) * cell.height + margin.bottom;
  const parts = charts.map(({ title, series }, i) => {
    const x = margin.left + (i % columns) * cell.width;
    const y = margin.top + Math.floor(i / columns) * cell.height;
    const top = niceTop(Math.max(...series.flatMap(({ key }) => valuesOf(samples, key)), 0));
    const unit = series[0]?.unit ?? 'count';
    const lines = series.map(({ key }, n) => {
      const points = thinned(samples).flatMap(({ seconds: at, values }) => {
        const value = values[key];
        if (value === undefined) return [];
        const px = plot.left + (seconds === 0 ? 0 : at / seconds) * plot.width;
        return [`${px.toFixed(1)},${(plot.top + plot.height * (1 - value / top)).toFixed(1)}`];
      });
      return `<polyline class="c${n}" points="${points.join(' ')}"/>`;
    });
    const legend = series.map(({ name, key }, n) => {
      // The table has the numbers: there is no room for them here.
      const grows = verdicts.get(key)?.startsWith('grows') ? '<tspan class="bad"> ↑ grows</tspan>' : '';
      return `<tspan class="c${n}"${n === 0 ? '' : ' dx="10"'}>${escaped(name)}</tspan>${grows}`;
    });
    return `<g transform="translate(${x} ${y})">
  <text class="title" x="${plot.left}" y="20">${escaped(title)}</text>
  <text x="${plot.left}" y="40">${legend.join('')}</text>
  <line class="axis" x1="${plot.left}" x2="${plot.left + plot.width}" y1="${plot.top}" y2="${plot.top}"/>
  <line class="axis" x1="${plot.left}" x2="${plot.left + plot.width}" y1="${plot.top + plot.height}" y2="${plot.top + plot.height}"/>
  <text x="${plot.left - 8}" y="${plot.top + 4}" text-anchor="end">${formatted(top, unit)}</text>
  <text x="${plot.left - 8}" y="${plot.top + plot.height + 4}" text-anchor="end">0</text>
  <text x="${plot.left}" y="${plot.top + plot.height + 18}">0</text>
  <text x="${plot.left + plot.width}" y="${plot.top + plot.height + 18}" text-anchor="end">${duration(seconds)}</text>
  ${lines.join('\n  ')}
</g>`;
  });
  const grown = rows.filter(({ verdict }) => verdict.startsWith('grows')).length;
  const found = grown === 0 ? 'nothing grows' : `${grown} of ${rows.length} series grow`;
  const head = `${duration(seconds)} of constant load: ${found}`;
  const subtitle = `${header.callsPerSecond} calls/s on ${header.pods} pods, from ${header.startedAt.slice(0, 16).replace('T', ' ')} UTC`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escaped(head)}">
<style>${style}</style>
<rect class="page" width="100%" height="100%"/>
<text class="head" x="${margin.left + plot.left}" y="32">${escaped(head)}</text>
<text x="${margin.left + plot.left}" y="52">${escaped(subtitle)}</text>
${parts.join('\n')}
</svg>
`;
}

const valuesOf = (samples: readonly Sample[], key: string) =>
  samples.flatMap(({ values }) => values[key] ?? []);

/** Samples are averaged in groups: thousands of points would hide the trend. */
function thinned(samples: readonly Sample[]): Sample[] {
  const size = Math.ceil(samples.length / maxPoints);
  if (size <= 1) return [...samples];
  return Array.from({ length: Math.ceil(samples.length / size) }, (_, i) => {
    const group = samples.slice(i * size, (i + 1) * size);
    const keys = new Set(group.flatMap(({ values }) => Object.keys(values)));
    const mean = (values: number[]) => values.reduce((sum, n) => sum + n, 0) / values.length;
    return {
      seconds: mean(group.map(({ seconds }) => seconds)),
      values: Object.fromEntries([...keys].map((key) => [key, mean(valuesOf(group, key))])),
    };
  });
}

function niceTop(max: number): number {
  if (max <= 0) return 1;
  const step = 10 ** Math.floor(Math.log10(max));
  return ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((n) => n * step >= max) ?? 10) * step;
}

function duration(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} minutes` : `${(seconds / 3600).toFixed(1)} hours`;
}

const escaped = (text: string) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');
