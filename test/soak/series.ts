/**
 * The samples of a soak and the conclusions from them. A series grows if a line fitted to its second half rises
 * significantly and by more than 3 % of its mean in an hour. The line is fitted to at most 20 blocks of samples, because
 * neighbouring samples depend on each other: a sawtooth of the garbage collector would look like a trend. A block of the
 * heap is its minimum, which is the memory that a collection could not free.
 */
export interface Sample {
  /** Since the load began. */
  seconds: number;
  values: Record<string, number>;
}

export interface Header {
  startedAt: string;
  plannedSeconds: number;
  callsPerSecond: number;
  pods: number;
}

export type Unit = 'bytes' | 'count' | 'us' | 'ms' | 'percent';

export interface SeriesDefinition {
  key: string;
  title: string;
  unit: Unit;
  block?: 'mean' | 'min';
  /** A stream is trimmed at about this length: until then it fills up. */
  cap?: number;
}

export interface Row {
  definition: SeriesDefinition;
  start: number;
  warm: number;
  middle: number;
  end: number;
  slopePerHour: number;
  verdict: string;
}

const maxBlocks = 20;
const minSamples = 8;
const minGrowthPerHour = 0.03;
/** Of the slope, in its standard errors: one series in a thousand without a trend reaches it. */
const minSignificance = 3.5;
const warmUp = 0.1;

export function summarise(samples: readonly Sample[], definitions: readonly SeriesDefinition[]): Row[] {
  return definitions.flatMap((definition) => {
    const points = samples.flatMap(({ seconds, values }) => {
      const value = values[definition.key];
      return value === undefined ? [] : [{ hours: seconds / 3600, value }];
    });
    if (points.length === 0) return [];
    const around = (share: number) => {
      const at = Math.round(share * (points.length - 1));
      return median(points.slice(Math.max(0, at - 2), at + 3).map(({ value }) => value));
    };
    const half = points.slice(Math.floor(points.length / 2));
    const { slope, significance, mean } = fitted(blocksOf(half, definition.block ?? 'mean'));
    const end = around(1);
    return [
      {
        ...{ definition, start: around(0), warm: around(warmUp), middle: around(0.5), end },
        slopePerHour: slope,
        verdict: verdictOf(definition, { slope, significance, mean, end, samples: half.length }),
      },
    ];
  });
}

interface Fit {
  slope: number;
  significance: number;
  mean: number;
}

function verdictOf(
  { unit, cap }: SeriesDefinition,
  { slope, significance, mean, end, samples }: Fit & { end: number; samples: number },
): string {
  if (samples < minSamples) return 'too few samples';
  if (Math.abs(significance) < minSignificance) return 'flat';
  if (Math.abs(slope) < minGrowthPerHour * Math.abs(mean)) return 'flat';
  if (slope < 0) return `falls by ${formatted(-slope, unit)}/h`;
  // Redis trims in whole nodes of 100 entries, so a full stream is slightly above its limit.
  if (cap !== undefined && end < 1.05 * cap) return `fills up to ${formatted(cap, unit)}`;
  return `grows by ${formatted(slope, unit)}/h`;
}

interface Point {
  hours: number;
  value: number;
}

function blocksOf(points: readonly Point[], block: 'mean' | 'min'): Point[] {
  const size = Math.max(1, Math.ceil(points.length / maxBlocks));
  return Array.from({ length: Math.floor(points.length / size) }, (_, i) => {
    const part = points.slice(i * size, (i + 1) * size);
    const values = part.map(({ value }) => value);
    return {
      hours: average(part.map(({ hours }) => hours)),
      value: block === 'min' ? Math.min(...values) : average(values),
    };
  });
}

/** The least squares line. */
function fitted(points: readonly Point[]): Fit {
  const [x, y] = [average(points.map(({ hours }) => hours)), average(points.map(({ value }) => value))];
  const sum = (of: (point: Point) => number) => points.reduce((total, point) => total + of(point), 0);
  const spread = sum(({ hours }) => (hours - x) ** 2);
  if (points.length < 3 || spread === 0) return { slope: 0, significance: 0, mean: y };
  const slope = sum(({ hours, value }) => (hours - x) * (value - y)) / spread;
  const error = sum(({ hours, value }) => (value - y - slope * (hours - x)) ** 2) / (points.length - 2);
  const significance = slope === 0 ? 0 : slope / Math.sqrt(error / spread);
  return { slope, significance, mean: y };
}

const average = (values: readonly number[]) => values.reduce((sum, n) => sum + n, 0) / values.length;

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

export function formatted(value: number, unit: Unit): string {
  const digits = (n: number) => (Math.abs(n) < 10 ? n.toFixed(1) : Math.round(n).toLocaleString('en-US'));
  if (unit === 'bytes')
    return Math.abs(value) < 1e6 ? `${digits(value / 1024)} KB` : `${digits(value / 1024 ** 2)} MB`;
  if (unit === 'percent') return `${digits(value)} %`;
  if (unit === 'count') return Number.isInteger(value) ? value.toLocaleString('en-US') : digits(value);
  return `${digits(value)} ${unit === 'us' ? 'µs' : unit}`;
}

/** A table for a terminal, or for a page in Markdown. */
export function tableOf(rows: readonly Row[], markdown = false): string {
  const head = ['', 'start', 'after warm-up', 'middle', 'end', 'slope per hour', 'verdict'];
  const lines = rows.map(
    ({ definition: { title, unit }, start, warm, middle, end, slopePerHour, verdict }) => [
      title,
      ...[start, warm, middle, end].map((value) => formatted(value, unit)),
      `${slopePerHour < 0 ? '' : '+'}${formatted(slopePerHour, unit)}`,
      verdict,
    ],
  );
  if (markdown)
    return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
  const widths = head.map((name, i) => Math.max(name.length, ...lines.map((cells) => cells[i]?.length ?? 0)));
  return [head, ...lines]
    .map((cells) =>
      cells
        .map((cell, i) => (i === 0 || i === 6 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .map((line) => `${line}\n`)
    .join('');
}
