/** A chart of the last hour, with the value at the pointer. */
import { useState } from 'preact/hooks';
import type { HistoryPoint } from '../types';

/** The value of a line at one point; null is a gap. */
export type Pick = (point: HistoryPoint) => number | null;

interface SparkProps {
  label: string;
  /** The oldest first. */
  points: readonly HistoryPoint[];
  /** The first is the main line. */
  lines: readonly Pick[];
  /** The index at the pointer; undefined when it has left. */
  onPoint?: (index: number | undefined) => void;
}

/** The drawing is stretched to the size of its box. */
const size = 100;

export function Spark({ label, points, lines: picks, onPoint }: SparkProps) {
  const [at, setAt] = useState<number>();
  const times = points.map((point) => Date.parse(point.at));
  const lines = picks.map((pick) => points.map(pick));
  const [from = 0, to = 0] = [times[0], times.at(-1)];
  const top = Math.max(0.001, 1.1 * Math.max(...lines.flat().map((value) => value ?? 0)));
  const x = (index: number) => ((times[index] ?? from) - from) * (size / (to - from || 1));
  const point = (value: number, index: number) => `${x(index)} ${size - (value * size) / top}`;
  const show = (index: number | undefined) => {
    if (index === at) return;
    setAt(index);
    onPoint?.(index);
  };
  const follow = (event: MouseEvent & { currentTarget: Element }) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const pointed = from + ((event.clientX - left) / width) * (to - from);
    // The nearest: not yet halfway to the next one.
    show(times.findIndex((time, index) => pointed < (time + (times[index + 1] ?? Infinity)) / 2));
  };
  return (
    <svg
      class="spark"
      viewBox={`0 0 ${size} ${size}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
      onMouseMove={follow}
      onMouseLeave={() => show(undefined)}
    >
      {lines.map((line) =>
        runsOf(line).map((run) => {
          const [first = 0, last = 0] = [run[0], run.at(-1)];
          const path = run.map((index) => point(line[index] ?? 0, index)).join('L');
          return (
            <>
              {line === lines[0] && (
                <path class="spark-area" d={`M${x(first)} ${size}L${path}L${x(last)} ${size}`} />
              )}
              {/* A run of one point becomes a dot. */}
              <path
                class={line === lines[0] ? undefined : 'spark-two'}
                d={`M${path}L${point(line[last] ?? 0, last)}`}
              />
            </>
          );
        }),
      )}
      {at !== undefined && <path class="spark-cursor" d={`M${x(at)} 0V${size}`} />}
    </svg>
  );
}

/** The indices of a line without its gaps: one list between two gaps. */
function runsOf(line: readonly (number | null)[]): number[][] {
  const runs: number[][] = [];
  line.forEach((value, index) => {
    if (value === null) return;
    if (index > 0 && line[index - 1] !== null) runs.at(-1)?.push(index);
    else runs.push([index]);
  });
  return runs;
}
