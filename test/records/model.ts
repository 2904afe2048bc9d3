/**
 * The record plane as a model of the expected results of every statement. It runs beside the real
 * statements on a real database; the first difference is a failure. Time passes by moving every time that the database
 * has written into the past, in steps that stay clear of all bounds.
 *
 * With `rules`, the column `customer` is the key of a limit, and failed records are retried. Which record of a key is
 * claimed is open; that the limit holds, that no claimable key is passed over for long, and how many records a claim
 * takes at least, is not.
 */
import type { Pool } from 'pg';
import { expect } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { Sessions } from '../../src/records/sessions.js';
import { RecordStore, type Recovered } from '../../src/records/store.js';
import { Sweeps } from '../../src/records/sweeps.js';
import type { Table } from '../../src/records/table.js';
import { memoryLog, type Page } from './fixture.js';

export const stepS = 20;
/** As far as possible behind a whole number of steps: real time passes, too. */
export const bounds = { deadAfterMs: 59_000, timeoutGraceMs: 39_000, stuckAfterMs: 619_000 };
export const timeoutMs = 300_000;
export const maxResets = 2;
const states = ['Queued', 'Processing', 'Completed', 'Failed'] as const;
type State = (typeof states)[number];

/** With a pause of 60 s: shorter than three steps, and longer than two by all that a slow machine adds. */
export const rules = { keys: ['1', '1', '1', '2', '2', '3', null, null], max: 2, retries: 2, pauseS: 60 };

/** Numbers pick one of what there is at that moment. */
export type Step =
  | { do: 'claim'; worker: number; most: number; begins: boolean }
  | { do: 'finish' | 'release' | 'renew'; worker: number; which: number; fails: boolean }
  | { do: 'beat' | 'kill' | 'signOff'; worker: number }
  | { do: 'pass'; steps: number }
  | { do: 'fast'; judges: boolean }
  | { do: 'slow' }
  | { do: 'edit'; record: number; state: number }
  | { do: 'take'; record: number; timed: boolean }
  | { do: 'remove'; record: number }
  | { do: 'retry'; record: number }
  | { do: 'key'; record: number; key: string | null };

interface ModelClaim {
  token: string | null;
  worker: number;
  /** Null after a release or a failed run; kept by a reset, whose pause is not that of a retry. */
  claimedAt: number | null;
  resets: number;
  notBefore: number | null;
  seenAt: number | null;
  /** The token of the latest claim that was begun. */
  begun: string | null;
  attempts: number;
  /** Of the row at its claim. */
  key: string | null;
}

interface ModelRecord {
  state: State;
  touchedAt: number | null;
  key: string | null;
}

interface ModelWorker {
  id: number;
  isKnown: boolean;
  isAlive: boolean;
  beatAt: number;
  /** Everything that it claimed and has not finished, including lost claims. */
  claims: { id: string; token: string }[];
}

export class Model {
  readonly #pool: Pool;
  readonly #store: RecordStore;
  readonly #rules: typeof rules | undefined;
  readonly #records = new Map<string, ModelRecord>();
  /** Claims in a row in which a key could have been claimed and was not. */
  readonly #passedOver = new Map<string | null, number>();
  readonly #claims = new Map<string, ModelClaim>();
  readonly #workers: ModelWorker[] = [];
  #now = 0;
  #lastToken = 0;

  private constructor(pool: Pool, table: Table, given?: typeof rules) {
    this.#pool = pool;
    this.#rules = given;
    this.#store = new RecordStore(new Sessions({ pool, clock: systemClock }), table);
  }

  /** `given`: its number of keys is the number of records. */
  static async start(
    pool: Pool,
    table: Table,
    records: number,
    workers: number,
    given?: typeof rules,
  ): Promise<Model> {
    const model = new Model(pool, table, given);
    await pool.query('TRUNCATE pages, smart_router.claims, smart_router.workers, smart_router.resets');
    const { rows } = await pool.query<Page>(
      "INSERT INTO pages (url) SELECT 'x' FROM generate_series(1, $1) RETURNING id",
      [records],
    );
    for (const { id } of rows) model.#records.set(id, { state: 'Queued', touchedAt: 0, key: null });
    for (const [i, { id }] of rows.sort((a, b) => (a.id < b.id ? -1 : 1)).entries())
      await model.#setKey(id, given?.keys[i] ?? null);
    for (let i = 0; i < workers; i += 1) {
      const { rows: signedOn } = await pool.query<{ id: number }>(
        "INSERT INTO smart_router.workers (process, host, pid) VALUES (gen_random_uuid(), 'h', 1) RETURNING id",
      );
      model.#workers.push({
        id: signedOn[0]?.id ?? 0,
        isKnown: true,
        isAlive: true,
        beatAt: 0,
        claims: [],
      });
    }
    return model;
  }

  async play(step: Step): Promise<void> {
    switch (step.do) {
      case 'claim':
        await this.#claim(this.#worker(step.worker), step.most, step.begins);
        break;
      case 'finish':
      case 'release':
      case 'renew':
        await this.#answer(step.do, this.#worker(step.worker), step.which, step.fails);
        break;
      case 'beat':
      case 'kill':
      case 'signOff':
        await this.#live(step.do, this.#worker(step.worker));
        break;
      case 'pass':
        await this.#pass(step.steps);
        break;
      case 'fast':
        await this.#fast(step.judges);
        break;
      case 'slow':
        await this.#slow();
        break;
      default:
        await this.#byHand(step);
    }
    await this.#compare();
  }

  /** All workers are dead, an hour passes, the sweeps run: nothing is stuck, and no record was reset too often. */
  async end(): Promise<void> {
    for (const worker of this.#workers) worker.isAlive = false;
    // The slow sweep first marks rows without a timestamp; then they have aged.
    await this.#slow();
    await this.#pass(60);
    await this.#fast(true);
    await this.#slow();
    await this.#compare();
    expect([...this.#records.values()].filter(({ state }) => state === 'Processing')).toEqual([]);
    const { rows } = await this.#pool.query<{ n: number }>(
      `SELECT count(*)::integer AS n FROM smart_router.resets AS r
       WHERE outcome = 'requeued' AND (resets > $1 OR (resets = $1 AND reason = 'unclaimed'))`,
      [maxResets],
    );
    expect(rows[0]?.n).toBe(0);
  }

  #worker(n: number): ModelWorker {
    const worker = this.#workers[n % this.#workers.length];
    if (!worker) throw new Error('there are workers');
    return worker;
  }

  async #claim(worker: ModelWorker, most: number, begins: boolean): Promise<void> {
    if (!worker.isAlive) return;
    const free = [...this.#records].filter(([id, { state }]) => state === 'Queued' && !this.#waits(id));
    const groups = this.#claimable(free);
    const claims = await this.#store.claim(worker.id, most, timeoutMs, 0);
    if (!this.#rules) expect(claims).toHaveLength(Math.min(most, free.length));
    else this.#expectFair(groups, most, claims);
    for (const { id, token, record } of claims) {
      expect(free.map(([one]) => one)).toContain(id);
      expect(record.status).toBe('Processing');
      expect(Number(token)).toBeGreaterThan(this.#lastToken);
      const { key } = this.#recordOf(id);
      this.#records.set(id, { state: 'Processing', touchedAt: this.#now, key });
      this.#claims.set(id, {
        ...{ token, worker: worker.id, claimedAt: this.#now, notBefore: null, seenAt: null, key },
        resets: this.#claims.get(id)?.resets ?? 0,
        attempts: this.#claims.get(id)?.attempts ?? 0,
        begun: begins ? token : (this.#claims.get(id)?.begun ?? null),
      });
      worker.claims.push({ id, token });
      if (begins) expect(await this.#store.begin({ id, token })).toBe(true);
    }
    for (const { token } of claims) this.#lastToken = Math.max(this.#lastToken, Number(token));
    for (const { id } of claims)
      if (this.#rules) expect(this.#freePlaces(this.#recordOf(id).key)).toBeGreaterThanOrEqual(0);
  }

  /** How many records of each key a claim could take. */
  #claimable(free: readonly [string, ModelRecord][]): Map<string | null, number> {
    const groups = new Map<string | null, number>();
    for (const [, { key }] of free) groups.set(key, (groups.get(key) ?? 0) + 1);
    for (const [key, records] of groups) {
      const claimable = Math.min(records, this.#freePlaces(key));
      if (claimable > 0) groups.set(key, claimable);
      else groups.delete(key);
    }
    return groups;
  }

  #freePlaces(key: string | null): number {
    if (key === null) return Number.POSITIVE_INFINITY;
    const taken = [...this.#claims.values()].filter((claim) => claim.token !== null && claim.key === key);
    return (this.#rules?.max ?? 0) - taken.length;
  }

  /** Every key has its turn: within as many claims of one record as there are keys, twice because of rows without one. */
  #expectFair(
    groups: ReadonlyMap<string | null, number>,
    most: number,
    claims: readonly { id: string }[],
  ): void {
    const keyless = groups.get(null) ?? 0;
    const keys = groups.size - (groups.has(null) ? 1 : 0);
    expect(claims.length).toBeGreaterThanOrEqual(Math.min(most, keys + keyless));
    expect(claims.length).toBeLessThanOrEqual(most);
    const served = new Set(claims.map(({ id }) => this.#recordOf(id).key));
    for (const key of new Set([...groups.keys(), ...this.#passedOver.keys()])) {
      const passedOver = groups.has(key) && !served.has(key) ? (this.#passedOver.get(key) ?? 0) + 1 : 0;
      expect(passedOver, `claims that passed over key ${key}`).toBeLessThan(6);
      this.#passedOver.set(key, passedOver);
    }
  }

  #recordOf(id: string): ModelRecord {
    const record = this.#records.get(id);
    if (!record) throw new Error(`record ${id} does not exist`);
    return record;
  }

  /** Also for dead workers and lost claims: a suspended process may resume. */
  async #answer(
    what: 'finish' | 'release' | 'renew',
    worker: ModelWorker,
    which: number,
    fails: boolean,
  ): Promise<void> {
    const mine = worker.claims[which % Math.max(1, worker.claims.length)];
    if (!mine) return;
    const { id, token } = mine;
    const claim = this.#claims.get(id);
    const record = this.#records.get(id);
    const holds = claim?.token === token;
    const moves = holds && record?.state === 'Processing';
    if (what === 'renew') {
      expect(await this.#store.renew([mine])).toEqual(holds ? [mine] : []);
      expect(await this.#store.lost([mine])).toEqual(holds ? [] : [mine]);
      if (holds) claim.claimedAt = this.#now;
      return;
    }
    worker.claims = worker.claims.filter((one) => one !== mine);
    if (what === 'finish') {
      const { written } = await this.#store.finish([{ id, token, error: fails ? 'no' : null }]);
      expect([...written]).toEqual(moves ? [id] : []);
      const isRetried = moves && fails && claim.attempts < (this.#rules?.retries ?? 0);
      if (holds && !isRetried) this.#claims.delete(id);
      if (moves) this.#move(id, isRetried ? 'Queued' : fails ? 'Failed' : 'Completed');
      if (!isRetried) return;
      claim.token = null;
      claim.claimedAt = null;
      claim.attempts += 1;
      claim.notBefore = this.#now + (this.#rules?.pauseS ?? 0);
    } else {
      expect(await this.#store.release([mine])).toBe(moves ? 1 : 0);
      if (holds) Object.assign(claim, { token: null, claimedAt: null });
      if (moves) record.state = 'Queued';
    }
  }

  async #live(what: 'beat' | 'kill' | 'signOff', worker: ModelWorker): Promise<void> {
    if (what === 'kill') worker.isAlive = false;
    if (what === 'beat' && worker.isAlive) {
      worker.beatAt = this.#now;
      await this.#pool.query('UPDATE smart_router.workers SET heartbeat_at = now() WHERE id = $1', [
        worker.id,
      ]);
    }
    if (what === 'signOff') {
      worker.isAlive = false;
      worker.isKnown = false;
      await this.#pool.query('DELETE FROM smart_router.workers WHERE id = $1', [worker.id]);
    }
  }

  async #pass(steps: number): Promise<void> {
    this.#now += steps * stepS;
    const past = (column: string) => `${column} = ${column} - ${steps * stepS} * interval '1 s'`;
    const times = ['claimed_at', 'not_before', 'seen_at', 'held_at'].map(past).join(', ');
    await this.#pool.query(`UPDATE pages SET ${past('updated_at')}`);
    await this.#pool.query(`UPDATE smart_router.claims SET ${times}`);
    await this.#pool.query(`UPDATE smart_router.workers SET ${past('heartbeat_at')}`);
  }

  async #fast(judges: boolean): Promise<void> {
    const lost = [...this.#claims].filter(([, claim]) => this.#isLost(claim, judges));
    const isStuck = ([id]: (typeof lost)[number]) => this.#records.get(id)?.state === 'Processing';
    const hasIdle = !lost.every(isStuck);
    const expected = lost.filter(isStuck).map(([id, claim]) => {
      const reason = this.#isTimedOut(claim) ? 'timed_out' : 'dead_worker';
      return this.#reset(id, reason);
    });
    // With a limit per key such a claim takes a place.
    if (this.#rules && hasIdle) this.#forget(judges);
    await this.#sweep(expected, (sweeps) => sweeps.claims(judges, new AbortController().signal));
  }

  async #slow(): Promise<void> {
    this.#forget(true);
    for (const [id, { state, touchedAt }] of this.#records) {
      const claim = this.#claims.get(id);
      if (state !== 'Processing' || touchedAt !== null || claim?.token) continue;
      if (claim) claim.seenAt ??= this.#now;
      else this.#claims.set(id, { ...unclaimed, seenAt: this.#now });
    }
    const expected = [...this.#records].flatMap(([id, { state, touchedAt }]) => {
      const claim = this.#claims.get(id);
      const since = touchedAt ?? claim?.seenAt;
      if (state !== 'Processing' || claim?.token || since === undefined || since === null) return [];
      return (this.#now - since) * 1000 > bounds.stuckAfterMs ? [this.#reset(id, 'unclaimed')] : [];
    });
    await this.#sweep(expected, (sweeps) => sweeps.unclaimed(new AbortController().signal));
  }

  async #sweep(expected: string[], run: (sweeps: Sweeps) => Promise<void>): Promise<void> {
    const found: Recovered[] = [];
    const sweeps = new Sweeps({
      ...{ workflow: 'pages', store: this.#store, bounds, batchSize: 3, log: memoryLog().log },
      onRecovered: async (recovered) => void found.push(...recovered),
    });
    await run(sweeps);
    expect(
      found.map(({ id, reason, outcome, resets }) => [id, reason, outcome, resets].join(' ')).sort(),
    ).toEqual(expected.sort());
  }

  #reset(id: string, reason: string): string {
    const claim = this.#claims.get(id) ?? { ...unclaimed };
    const { resets } = claim;
    // A reset does not count for a record that was reset before and had not started.
    const counts = reason === 'unclaimed' || resets === 0 || claim.begun === claim.token;
    const isOver = counts && resets >= maxResets;
    this.#move(id, isOver ? 'Failed' : 'Queued');
    if (isOver) this.#claims.delete(id);
    else {
      const waitS = resets === 0 ? 0 : 10 * 2 ** (resets - 1);
      this.#claims.set(id, {
        ...claim,
        token: null,
        claimedAt: claim.claimedAt ?? this.#now,
        resets: counts ? resets + 1 : resets,
        notBefore: this.#now + waitS,
        seenAt: null,
      });
    }
    return [id, reason, isOver ? 'failed' : 'requeued', resets].join(' ');
  }

  #forget(judges: boolean): void {
    for (const [id, claim] of this.#claims) {
      const state = this.#records.get(id)?.state;
      const matters =
        state === 'Processing' ||
        (claim.token === null &&
          state === 'Queued' &&
          (claim.resets > 0 || claim.attempts > 0 || this.#waits(id)));
      if (!matters && (claim.token === null || this.#isLost(claim, judges))) this.#claims.delete(id);
    }
  }

  async #byHand(step: Extract<Step, { record: number }>): Promise<void> {
    const ids = [...this.#records.keys()].sort();
    const id = ids[step.record % Math.max(1, ids.length)];
    if (id === undefined) return;
    if (step.do === 'remove') {
      this.#records.delete(id);
      await this.#pool.query('DELETE FROM pages WHERE id = $1', [id]);
      return;
    }
    if (step.do === 'key') return this.#setKey(id, step.key);
    if (step.do === 'retry') return this.#retryByHand(id);
    const state = step.do === 'take' ? 'Processing' : states[step.state % states.length];
    const isTimed = step.do === 'edit' || step.timed;
    if (state === undefined || (step.do === 'take' && this.#records.get(id)?.state !== 'Queued')) return;
    this.#move(id, state, isTimed ? this.#now : null);
    await this.#pool.query(
      'UPDATE pages SET status = $2, updated_at = CASE WHEN $3::boolean THEN now() END WHERE id = $1',
      [id, state, isTimed],
    );
  }

  #move(id: string, state: State, touchedAt: number | null = this.#now): void {
    this.#records.set(id, { state, touchedAt, key: this.#recordOf(id).key });
  }

  /** The team changes the key of a row, also while it is processed: its claim counts for the key that it had then. */
  async #setKey(id: string, key: string | null): Promise<void> {
    if (!this.#rules) return;
    this.#recordOf(id).key = key;
    await this.#pool.query('UPDATE pages SET customer = $2 WHERE id = $1', [id, key]);
  }

  /** An operator retries a record: also one that waits for its retry, which then starts at once. */
  async #retryByHand(id: string): Promise<void> {
    const claim = this.#claims.get(id);
    const { state } = this.#recordOf(id);
    const waits =
      state === 'Queued' && this.#waits(id) && (claim?.attempts ?? 0) > 0 && claim?.claimedAt === null;
    const isFree = claim?.token == null || this.#isLost(claim, true);
    const isRetried = (state === 'Failed' || waits) && isFree;
    const { changed } = await this.#store.requeueByHand([id], bounds, 'retryByHand');
    expect([...(changed ?? [])]).toEqual(isRetried ? [id] : []);
    if (!isRetried) return;
    this.#move(id, 'Queued');
    this.#claims.delete(id);
  }

  /** A new worker finishes all that is left, in a number of claims that the fairness allows. */
  async drain(): Promise<void> {
    const [worker] = this.#workers;
    if (!worker) throw new Error('there are workers');
    Object.assign(worker, { isAlive: true, isKnown: true, claims: [] });
    const left = () => [...this.#records.values()].filter(({ state }) => state === 'Queued').length;
    for (let claims = 0; left() > 0; claims += 1) {
      expect(claims).toBeLessThan(50);
      await this.#pass(60);
      const before = left();
      await this.#claim(worker, 3, false);
      expect(left()).toBeLessThan(before);
      while (worker.claims.length > 0) await this.#answer('finish', worker, 0, false);
      await this.#compare();
    }
    expect(this.#claims.size).toBe(0);
  }

  async #compare(): Promise<void> {
    const { rows } = await this.#pool.query<{ id: string; status: string }>(
      'SELECT id, status::text FROM pages',
    );
    expect(Object.fromEntries(rows.map(({ id, status }) => [id, status]))).toEqual(
      Object.fromEntries([...this.#records].map(([id, { state }]) => [id, state])),
    );
    const { rows: claims } = await this.#pool.query<Pick<ModelClaim, 'token' | 'resets' | 'attempts'>>(
      `SELECT record_id AS id, token, resets, coalesce(attempts, 0) AS attempts FROM smart_router.claims
       ORDER BY record_id`,
    );
    const known = [...this.#claims].map(([id, { token, resets, attempts }]) => ({
      ...{ id, token, resets, attempts },
    }));
    expect(claims).toEqual(known.sort((a, b) => (a.id < b.id ? -1 : 1)));
  }

  #waits(id: string): boolean {
    return (this.#claims.get(id)?.notBefore ?? -1) > this.#now;
  }

  #isTimedOut({ claimedAt }: ModelClaim): boolean {
    return (this.#now - (claimedAt ?? this.#now)) * 1000 > timeoutMs + bounds.timeoutGraceMs;
  }

  #isLost(claim: ModelClaim, judges: boolean): boolean {
    if (claim.token === null) return false;
    const owner = this.#workers.find(({ id }) => id === claim.worker);
    const isDead = !owner?.isKnown || (this.#now - owner.beatAt) * 1000 > bounds.deadAfterMs;
    return this.#isTimedOut(claim) || (judges && isDead);
  }
}

const unclaimed: ModelClaim = {
  token: null,
  worker: 0,
  claimedAt: null,
  resets: 0,
  notBefore: null,
  seenAt: null,
  begun: null,
  attempts: 0,
  key: null,
};
