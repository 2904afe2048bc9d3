/**
 * Measures two sides against each other. They alternate in many short rounds, each first every other time, so that
 * other load on the machine affects both. The figure is the median of the rounds' ratios.
 */

export interface Comparison {
  /** Median operations per second of each side. */
  first: number;
  second: number;
  /** Median of first / second, round by round. */
  ratio: number;
  /** The smallest and the largest round: the noise. */
  spread: [number, number];
}

export interface Rounds {
  rounds: number;
  roundMs: number;
}

/** Returns operations per second of one round. */
export type Side = (roundMs: number) => Promise<number>;

export async function compare(first: Side, second: Side, { rounds, roundMs }: Rounds): Promise<Comparison> {
  // Warm-up: compiled code, loaded scripts, grown sockets.
  await first(roundMs / 2);
  await second(roundMs / 2);
  const firsts: number[] = [];
  const seconds: number[] = [];
  for (let round = 0; round < rounds; round++) {
    if (round % 2 === 0) firsts.push(await first(roundMs));
    seconds.push(await second(roundMs));
    if (round % 2 === 1) firsts.push(await first(roundMs));
  }
  const ratios = firsts.map((value, round) => value / (seconds[round] ?? Number.NaN));
  return {
    first: median(firsts),
    second: median(seconds),
    ratio: median(ratios),
    spread: [Math.min(...ratios), Math.max(...ratios)],
  };
}

/** `callers` callers repeat the operation until the time is up; operations per second. */
export async function throughput(
  callers: number,
  roundMs: number,
  operation: (caller: number) => Promise<void>,
): Promise<number> {
  const start = performance.now();
  const end = start + roundMs;
  let done = 0;
  await Promise.all(
    Array.from({ length: callers }, async (_, caller) => {
      while (performance.now() < end) {
        await operation(caller);
        done++;
      }
    }),
  );
  return done / ((performance.now() - start) / 1000);
}

/** Runs the operation for every item, `callers` at a time. */
export async function forEach<T>(
  items: Iterable<T>,
  callers: number,
  operation: (item: T) => Promise<unknown>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  await Promise.all(
    Array.from({ length: callers }, async () => {
      for (let next = iterator.next(); !next.done; next = iterator.next()) await operation(next.value);
    }),
  );
}

export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** The value below which `percent` of all lie (the nearest rank; the mean of the two for an even median). */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const rank = (percent / 100) * sorted.length;
  const upper = sorted[Math.min(sorted.length - 1, Math.floor(rank))] ?? Number.NaN;
  const lower = sorted[Math.max(0, Math.ceil(rank) - 1)] ?? Number.NaN;
  return (lower + upper) / 2;
}
