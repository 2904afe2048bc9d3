/**
 * The client that `ctx.tx` gives to a handler: a pool connection for one transaction. The next user of the connection
 * must not find the handler's settings, role, temporary tables, locks, cursors or prepared statements.
 *
 * It decides by the text of each statement, which costs no round trip. Statements that begin or end a transaction are
 * rejected. A statement that leaves state on the session marks the connection: the session is reset before the commit
 * (`resetSession`), because behind PgBouncer the server connection belongs to others right after it. Then the connection
 * is closed, because a reset also undoes what the team's `pool.on('connect')` has set. `DISCARD ALL` after each
 * transaction would cost a round trip, and behind PgBouncer reset another server connection.
 *
 * Weakness: state that a function sets is not in the text. Our own statements name schemas, and a connection on which
 * one of them fails is closed (`Sessions.query`). Statements that the driver prepares by name stay: its cache.
 */
import type { PoolClient } from 'pg';

/** Does what DISCARD ALL does, in a form allowed inside a transaction. */
export const resetSession =
  'SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DEALLOCATE ALL';

/** Strings, names and comments contain no commands. */
const quoted = /'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$[\s\S]*?\$\1\$|--[^\n]*|\/\*[\s\S]*?\*\//g;
const endsTransaction =
  /^(begin|start|commit|end|abort|prepare\s+transaction|rollback(?!\s+((work|transaction)\s+)?to\b))\b/i;
const leavesNoState =
  /^(select|insert|update|delete|with|merge|values|table|copy|call|lock|savepoint|release|rollback|explain|analyze|notify|fetch|move|close|declare|truncate|refresh|show|create|alter|drop|comment|grant|revoke|set\s+(local|constraints|transaction))\b/i;
const leavesState =
  /\bset_config\b|\bpg_(try_)?advisory_lock|\b(create|into)\s+((local|global)\s+)?temp(orary)?\b|\bpg_temp\b|\bwith\s+hold\b/i;
/** `set_config(..., ..., true)` is SET LOCAL. */
const setsLocally = /\bset_config\s*\([^()]*,\s*true\s*\)/gi;

/** `onState`: a statement leaves state on the session. `onError`: a statement failed. `isOver`: the transaction has ended. */
export function transactionClient(
  client: PoolClient,
  { onState, onError, isOver }: { onState(): void; onError(error: unknown): void; isOver(): boolean },
): PoolClient {
  const query = (...args: unknown[]) => {
    if (isOver()) throw new Error('ctx.tx has ended: its client can no longer be used');
    if (inspect(textOf(args[0]))) onState();
    const answer: unknown = Reflect.apply(client.query, client, args);
    if (answer instanceof Promise) answer.catch(onError);
    return answer;
  };
  return new Proxy(client, {
    get: (_, name) => {
      if (name === 'query') return query;
      // ctx.tx releases the connection.
      if (name === 'release') return () => {};
      const value: unknown = Reflect.get(client, name);
      return typeof value === 'function' ? value.bind(client) : value;
    },
  });
}

/** Accepts a statement, a query configuration, or a cursor. */
function textOf(query: unknown): string {
  const { text = query } = (query ?? {}) as { text?: unknown };
  return typeof text === 'string' ? text : '';
}

/** Returns true if it leaves state on the session; throws if it begins or ends a transaction. */
function inspect(text: string): boolean {
  const statements = text.replace(quoted, ' ').split(';');
  return statements.some((raw) => {
    const statement = raw.trim();
    if (endsTransaction.test(statement))
      throw new Error(
        `ctx.tx begins and ends the transaction itself: ${statement.slice(0, 40)} is not allowed in it`,
      );
    if (statement === '') return false;
    return !leavesNoState.test(statement) || leavesState.test(statement.replace(setsLocally, ' '));
  });
}
