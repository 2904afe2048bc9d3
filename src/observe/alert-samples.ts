/**
 * Numbers of the last hour for alert conditions, in buckets of one minute, so that memory is bounded. Times are of the
 * monotonic clock: a corrected wall clock changes nothing.
 */
const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
/** An older value is unknown: the database is unreachable, or no sweep runs. */
const freshMs = 5 * minuteMs;

const minuteOf = (nowMs: number) => Math.floor(nowMs / minuteMs);

function dropOld(minutes: Map<number, unknown>, nowMs: number): void {
  for (const minute of minutes.keys()) if (minute < minuteOf(nowMs - hourMs)) minutes.delete(minute);
}

/** A value that rises and falls, like the number of stuck records. */
export class Gauge {
  readonly #lowest = new Map<number, number>();
  #value = 0;
  #atMs = Number.NEGATIVE_INFINITY;
  #firstMs: number | undefined;

  set(value: number, nowMs: number): void {
    const minute = minuteOf(nowMs);
    this.#lowest.set(minute, Math.min(value, this.#lowest.get(minute) ?? value));
    dropOld(this.#lowest, nowMs);
    this.#firstMs ??= nowMs;
    this.#value = value;
    this.#atMs = nowMs;
  }

  /** Undefined when the last value is too old. */
  latest(nowMs: number): number | undefined {
    return nowMs - this.#atMs <= freshMs ? this.#value : undefined;
  }

  lowestOfHour(nowMs: number): number {
    dropOld(this.#lowest, nowMs);
    return Math.min(this.#value, ...this.#lowest.values());
  }

  coversAnHour(nowMs: number): boolean {
    return this.#firstMs !== undefined && nowMs - this.#firstMs >= hourMs;
  }
}

/** A count of events, like failed sessions. */
export class EventCount {
  readonly #counts = new Map<number, number>();

  add(count: number, nowMs: number): void {
    const minute = minuteOf(nowMs);
    // Once a minute is enough: this runs for every session.
    if (!this.#counts.has(minute)) dropOld(this.#counts, nowMs);
    this.#counts.set(minute, (this.#counts.get(minute) ?? 0) + count);
  }

  /** Of the last `ms`, to the minute. */
  within(ms: number, nowMs: number): number {
    const from = minuteOf(nowMs - ms);
    let sum = 0;
    for (const [minute, count] of this.#counts) if (minute > from) sum += count;
    return sum;
  }
}
