/**
 * The client that `ctx.tx` lends to a handler. The handler gets a connection of the pool for one transaction; the next
 * user of that connection must not meet its settings, role, temporary tables, locks, cursors or prepared statements.
 *
 * Its statements pass through here, so their text decides; this costs no round trip. Statements that begin or end a
 * transaction are refused. A statement that leaves something on the session marks the connection: before the commit
 * the session is reset inside the transaction (`resetSession`), because behind PgBouncer the server connection belongs
 * to others right after it, and afterwards the connection is closed, because a reset also undoes what the team's own
 * `pool.on('connect')` has set. `DISCARD ALL` after each transaction would cost a round trip each time, and behind
 * PgBouncer it would reset another server connection.
 *
 * Weakness: what a function sets for the session is not in the text. Our own statements name schemas, and a connection
 * on which one of them fails is closed (`Sessions.query`). Statements that the driver prepares by name stay: they are
 * that driver's cache.
 */
import type { PoolClient } from 'pg';

/** All that DISCARD ALL does, in a form that a transaction accepts. */
export const resetSession =
  'SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DEALLOCATE ALL';

/** Texts, names and comments: nothing in them is a command. */
const quoted = /'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$[\s\S]*?\$\1\$|--[^\n]*|\/\*[\s\S]*?\*\//g;
const endsTransaction =
  /^(begin|start|commit|end|abort|prepare\s+transaction|rollback(?!\s+((work|transaction)\s+)?to\b))\b/i;
const leavesNothing =
  /^(select|insert|update|delete|with|merge|values|table|copy|call|lock|savepoint|release|rollback|explain|analyze|notify|fetch|move|close|declare|truncate|refresh|show|create|alter|drop|comment|grant|revoke|set\s+(local|constraints|transaction))\b/i;
const leavesSomething =
  /\bset_config\b|\bpg_(try_)?advisory_lock|\b(create|into)\s+((local|global)\s+)?temp(orary)?\b|\bpg_temp\b|\bwith\s+hold\b/i;
/** `set_config(..., ..., true)` is SET LOCAL. */
const setsLocally = /\bset_config\s*\([^()]*,\s*true\s*\)/gi;

export class LentClient {
  readonly client: PoolClient;
  #isOver = false;

  /** `onState`: the handler is about to leave something on the session. `onError`: a statement of it has failed. */
  constructor(client: PoolClient, { onState, onError }: { onState(): void; onError(error: unknown): void }) {
    const query = (...args: unknown[]) => {
      if (this.#isOver) throw new Error('ctx.tx has ended: its client cannot be used any more');
      if (inspect(textOf(args[0]))) onState();
      const answer: unknown = Reflect.apply(client.query, client, args);
      if (answer instanceof Promise) answer.catch(onError);
      return answer;
    };
    this.client = new Proxy(client, {
      get: (_, name) => {
        if (name === 'query') return query;
        // ctx.tx does it.
        if (name === 'release') return () => {};
        const value: unknown = Reflect.get(client, name);
        return typeof value === 'function' ? value.bind(client) : value;
      },
    });
  }

  end(): void {
    this.#isOver = true;
  }
}

/** Of a statement, a configuration with one, or a cursor. */
function textOf(query: unknown): string {
  const { text = query } = (query ?? {}) as { text?: unknown };
  return typeof text === 'string' ? text : '';
}

/** True if it leaves something on the session; throws if it begins or ends a transaction. */
function inspect(text: string): boolean {
  const statements = text.replace(quoted, ' ').split(';');
  return statements.some((raw) => {
    const statement = raw.trim();
    if (endsTransaction.test(statement))
      throw new Error(
        `ctx.tx begins and ends the transaction itself: ${statement.slice(0, 40)} cannot be used in it`,
      );
    if (statement === '') return false;
    return !leavesNothing.test(statement) || leavesSomething.test(statement.replace(setsLocally, ' '));
  });
}
