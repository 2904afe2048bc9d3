/**
 * The table of a store while programs change it: an id becomes bigint, a status an enum, an error column NOT NULL. After an
 * error that such a change causes, the table is read again, and the statement is repeated if its text is another one now.
 * After a read that found no change, the next one is at least a second later: the cause may be a row. A table that no
 * longer fits its workflow is a ConfigError, as at the start.
 */
import { singleFlight } from '../clock.js';
import { ConfigError } from '../errors.js';
import { codeOf, isStatusKept, type Sessions } from './sessions.js';
import type { QueryName, Table } from './table.js';

const betweenReadsMs = 1000;

export class LiveTable {
  readonly #sessions: Sessions;
  #table: Table;
  readonly #read = singleFlight(() => this.#readNow());
  #nextReadMs = 0;
  #problem: ConfigError | undefined;

  constructor(sessions: Sessions, table: Table) {
    this.#sessions = sessions;
    this.#table = table;
  }

  get current(): Table {
    return this.#table;
  }

  async run<T>(statement: (table: Table) => Promise<T>): Promise<T> {
    const used = this.#table;
    try {
      return await statement(used);
    } catch (error) {
      if (!mayBeChanged(error)) throw error;
      if (this.#table === used) await this.#read();
      if (this.#problem) throw this.#problem;
      if (this.#table === used) throw error;
      return statement(this.#table);
    }
  }

  /**
   * Runs one batch while no other replica does: undefined if one does. The lock belongs to the transaction, so it works
   * through a pooler. Each sweep has its own: the slow one must not be skipped because the fast one runs. $1 is the
   * workflow, followed by `args`.
   */
  runAlone<R extends object>(name: QueryName, args: unknown[]): Promise<R[] | undefined> {
    const sessions = this.#sessions;
    const sweep = `smart_router.${name.endsWith('Claims') ? 'fast' : 'slow'}_sweep`;
    return this.run(({ workflowId, queries }) =>
      sessions.transaction(async (client) => {
        const { rows: locks } = await sessions.queryOn<{ mine: boolean }>(
          client,
          // The statement must not hold the lock for longer than we wait for it.
          `SELECT pg_try_advisory_xact_lock(hashtext($2), $1) AS mine, set_config('statement_timeout', $3, true)`,
          [workflowId, sweep, String(sessions.queryTimeoutMs)],
        );
        if (!locks[0]?.mine) return undefined;
        return (await sessions.queryOn<R>(client, queries[name], [workflowId, ...args])).rows;
        // At this level, rows are checked as they are when locked.
      }, 'READ COMMITTED'),
    );
  }

  async #readNow(): Promise<void> {
    const nowMs = this.#sessions.clock.monotonic();
    if (nowMs < this.#nextReadMs) return;
    this.#nextReadMs = nowMs + betweenReadsMs;
    try {
      const table = await this.#table.reread(this.#sessions);
      this.#problem = undefined;
      if (textOf(table) === textOf(this.#table)) return;
      this.#table = table;
      this.#nextReadMs = 0;
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      this.#problem = error;
    }
  }
}

const textOf = ({ queries, maxErrorLength }: Table) => JSON.stringify([queries, maxErrorLength]);

/**
 * A value too long (22001) or out of range (22003), not of the type (22P02, 42804), NULL (23502); an unknown column
 * (42703), type (42704), operator (42883) or table (42P01).
 */
const mayBeChanged = (error: unknown) =>
  /^(22001|22003|22P02|23502|42703|42704|42804|42883|42P01)$/.test(codeOf(error)) && !isStatusKept(error);
