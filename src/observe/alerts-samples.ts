/**
 * What alerts know: numbers of the last hour, a minute at a time, so that memory is bounded whatever the traffic. All
 * times are the monotonic clock's: a corrected wall clock doubles nothing.
 */
const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
/** Older than this, the last word about a number is no word at all: the database is away, or nobody looks. */
const freshMs = 5 * minuteMs;

const minuteOf = (nowMs: number) => Math.floor(nowMs / minuteMs);

function forget(minutes: Map<number, unknown>, nowMs: number): void {
  for (const minute of minutes.keys()) if (minute < minuteOf(nowMs - hourMs)) minutes.delete(minute);
}

/** A number that goes up and down, like the count of stuck records. */
export class Level {
  readonly #lowest = new Map<number, number>();
  #value = 0;
  #atMs = Number.NEGATIVE_INFINITY;
  #firstMs: number | undefined;

  set(value: number, nowMs: number): void {
    const minute = minuteOf(nowMs);
    this.#lowest.set(minute, Math.min(value, this.#lowest.get(minute) ?? value));
    forget(this.#lowest, nowMs);
    this.#firstMs ??= nowMs;
    this.#value = value;
    this.#atMs = nowMs;
  }

  /** Undefined: nobody has said so lately. */
  latest(nowMs: number): number | undefined {
    return nowMs - this.#atMs <= freshMs ? this.#value : undefined;
  }

  lowestOfHour(nowMs: number): number {
    forget(this.#lowest, nowMs);
    return Math.min(this.#value, ...this.#lowest.values());
  }

  /** Whether a whole hour is known; before that, nobody can say that something did not double. */
  knowsAnHour(nowMs: number): boolean {
    return this.#firstMs !== undefined && nowMs - this.#firstMs >= hourMs;
  }
}

/** Things that happen, like sessions that failed. */
export class Tally {
  readonly #counts = new Map<number, number>();

  add(count: number, nowMs: number): void {
    const minute = minuteOf(nowMs);
    // Once a minute is enough: this is called for every session.
    if (!this.#counts.has(minute)) forget(this.#counts, nowMs);
    this.#counts.set(minute, (this.#counts.get(minute) ?? 0) + count);
  }

  /** To the minute. */
  within(ms: number, nowMs: number): number {
    const from = minuteOf(nowMs - ms);
    let sum = 0;
    for (const [minute, count] of this.#counts) if (minute > from) sum += count;
    return sum;
  }
}

export type AlertSample =
  | { kind: 'stuck'; workflow: string; records: number; oldestSeconds: number }
  | { kind: 'sessions'; ok: number; failed: number }
  | { kind: 'zombie'; workflow: string }
  | { kind: 'breaker'; isOpen: boolean }
  | { kind: 'brake'; isHolding: boolean }
  | { kind: 'removals'; held: number };

/** Names come from the configuration; a bound all the same, so that a mistake there cannot fill the memory. */
const mostWorkflows = 1000;

export class Samples {
  readonly stuck = new Map<string, Level>();
  readonly oldestSeconds = new Map<string, number>();
  readonly zombies = new Map<string, Tally>();
  readonly sessionsOk = new Tally();
  readonly sessionsFailed = new Tally();
  readonly removals = new Level();
  isBreakerOpen: boolean | undefined;
  isBraked: boolean | undefined;

  observe(sample: AlertSample, nowMs: number): void {
    switch (sample.kind) {
      case 'stuck':
        kept(this.stuck, sample.workflow, () => new Level())?.set(sample.records, nowMs);
        if (this.stuck.has(sample.workflow)) this.oldestSeconds.set(sample.workflow, sample.oldestSeconds);
        return;
      case 'sessions':
        this.sessionsOk.add(sample.ok, nowMs);
        this.sessionsFailed.add(sample.failed, nowMs);
        return;
      case 'zombie':
        kept(this.zombies, sample.workflow, () => new Tally())?.add(1, nowMs);
        return;
      case 'breaker':
        this.isBreakerOpen = sample.isOpen;
        return;
      case 'brake':
        this.isBraked = sample.isHolding;
        return;
      case 'removals':
        this.removals.set(sample.held, nowMs);
    }
  }
}

function kept<T>(map: Map<string, T>, name: string, make: () => T): T | undefined {
  const found = map.get(name);
  if (found || map.size >= mostWorkflows) return found;
  const made = make();
  map.set(name, made);
  return made;
}
