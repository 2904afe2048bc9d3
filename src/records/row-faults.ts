/**
 * Decides whether an error of a batch is the fault of one row. Some errors certainly are (`isRowFault`); most others may
 * be: a trigger fails for some rows, an id is too long for our index, a row is damaged. Then rows are tried one by one. If
 * others pass, the refused ones are at fault and are set aside; if none does, the cause may be the table or the rights.
 * Before an unclear error counts against a row, the row is tried again: after a change of the table, PL/pgSQL fails once in
 * every session that has a plan of a trigger, and that session is closed.
 */
import { isRowFault, mayBeRowFault } from './sessions.js';

/** Rows tried after which an error counts as one of the table, if none has passed. */
export const maxUnclear = 20;
/** The default size of a pool: so many sessions may fail once. */
const maxStaleSessions = 10;

/**
 * Runs `attempt` for each item; it resolves to whether it changed a row. Returns the errors of the items that are at
 * fault. Throws an error that may not be of a row; `othersPass`: a row has passed before.
 */
export async function oneByOne<T>(
  items: readonly T[],
  attempt: (item: T) => Promise<boolean>,
  othersPass = false,
): Promise<Map<T, unknown>> {
  const refused = new Map<T, unknown>();
  let hasPassed = othersPass;
  const unclear: unknown[] = [];
  for (const item of items) {
    try {
      if (await attempt(item)) hasPassed = true;
    } catch (error) {
      if (!mayBeRowFault(error)) throw error;
      refused.set(item, error);
      if (!isRowFault(error)) unclear.push(error);
      if (!hasPassed && unclear.length >= maxUnclear) break;
    }
  }
  if (!hasPassed && unclear.length > 0) throw unclear[0];
  let spare = maxStaleSessions;
  for (const item of [...refused.keys()]) {
    for (let again = true; again && !isRowFault(refused.get(item)); spare -= 1) {
      try {
        await attempt(item);
        refused.delete(item);
        break;
      } catch (error) {
        if (!mayBeRowFault(error)) throw error;
        refused.set(item, error);
        again = spare > 0;
      }
    }
  }
  return refused;
}
