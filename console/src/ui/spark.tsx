/** A chart of the last hour, with the value at the pointer. */
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { onThemeChange } from '../preferences';

interface SparkProps {
  label: string;
  /** Seconds since 1970. */
  times: readonly number[];
  /** The first is the main line; null is a gap. */
  lines: readonly (readonly (number | null)[])[];
  /** The index at the pointer; undefined when it has left. */
  onPoint?: (index: number | undefined) => void;
}

export function Spark({ label, times, lines, onPoint }: SparkProps) {
  const box = useRef<HTMLDivElement>(null);
  const second = useRef<HTMLSpanElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const point = useRef(onPoint);
  point.current = onPoint;
  const count = lines.length;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const colour = (of: Element | null) => (of ? getComputedStyle(of).color : '#888');
    const line = (index: number): uPlot.Series => ({
      stroke: () => colour(index === 0 ? element : second.current),
      width: 1.6,
      points: { show: false },
      ...(index === 0 ? { fill: () => withAlpha(colour(element)) } : {}),
    });
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: element.clientHeight - 8,
        padding: [4, 0, 2, 0],
        legend: { show: false },
        axes: [{ show: false }, { show: false }],
        // A line of zeros is at the bottom, not in the middle.
        scales: {
          y: { range: (_, low, high) => [Math.min(0, low), Math.max(high * 1.1, low + 0.001, 0.001)] },
        },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        series: [{}, ...Array.from({ length: count }, (_, index) => line(index))],
        hooks: { setCursor: [(self) => point.current?.(self.cursor.idx ?? undefined)] },
      },
      [[], ...Array.from({ length: count }, () => [])],
      element,
    );
    plot.current = chart;
    const observer = new ResizeObserver(() =>
      chart.setSize({ width: element.clientWidth, height: element.clientHeight - 8 }),
    );
    observer.observe(element);
    const forget = onThemeChange(() => chart.redraw());
    return () => {
      observer.disconnect();
      forget();
      chart.destroy();
      plot.current = undefined;
    };
  }, [count]);

  useEffect(() => {
    plot.current?.setData([[...times], ...lines.map((line) => [...line])] as uPlot.AlignedData);
  }, [times, lines]);

  return (
    <div class="spark" ref={box} role="img" aria-label={label}>
      <span class="spark-two" ref={second} hidden />
    </div>
  );
}

function withAlpha(colour: string): string {
  const [r = '0', g = '0', b = '0'] = colour.match(/[\d.]+/g) ?? [];
  return `rgb(${r} ${g} ${b} / 12%)`;
}
