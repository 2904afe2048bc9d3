/**
 * The rows of one claim while they arrive. Values of rows beyond `maxClaimSize` are not kept: 60 rows of 15 MB would otherwise
 * end the process before it could return any. The first row is always kept.
 */
import type { CustomTypesConfig, PoolClient, QueryArrayConfig, QueryArrayResult } from 'pg';
import type { Claim } from './store-types.js';
import type { Row } from './workflow.js';

/** In characters. A queue holds two claims at most; parsed JSON takes several times the memory of its text. */
export const maxClaimSize = 16 * 1024 * 1024;

/** Our own columns in a claimed row, its first ones: token, is_back, is_suspect, id. They need no parser. */
const ownColumns = 4;

export type ClaimedResult = Pick<QueryArrayResult<unknown[]>, 'rows' | 'fields'>;

export class ClaimedRows {
  /** Characters before each row, and of all rows. Empty with a driver that has its own parsers (pg-native). */
  #starts: number[] = [];
  #total = 0;

  /** For a statement on `client`: rows as lists of values, and parsers that also measure the rows. */
  config(client: PoolClient): Pick<QueryArrayConfig, 'rowMode' | 'types'> {
    // A statement that is retried starts again.
    const starts: number[] = [];
    this.#starts = starts;
    this.#total = 0;
    let isCut = false;
    let columns = 0;
    // The driver asks once per column, in their order.
    const getTypeParser = (...type: Parameters<typeof client.getTypeParser>) => {
      columns += 1;
      if (columns === 1)
        return (value: string) => {
          isCut = this.#total > maxClaimSize;
          starts.push(this.#total);
          return value;
        };
      if (columns <= ownColumns) return (value: string) => value;
      const parse = client.getTypeParser(...type);
      return (value: string) => {
        this.#total += value.length;
        return isCut ? undefined : parse(value);
      };
    };
    const types = { getTypeParser: getTypeParser as CustomTypesConfig['getTypeParser'] };
    return { rowMode: 'array', types };
  }

  claims({ rows, fields }: ClaimedResult, nowMs: number): Claim[] {
    const names = fields.map(({ name }) => name);
    // Rows are copies of it: V8 then knows their shape.
    const empty: Row = Object.fromEntries(names.slice(ownColumns).map((name) => [name, null]));
    return rows.map((values, i) => {
      const record = { ...empty };
      for (let column = ownColumns; column < names.length; column += 1)
        record[names[column] as string] = values[column];
      const start = this.#starts[i] ?? 0;
      return {
        id: String(values[3]),
        token: String(values[0]),
        record,
        confirmedMs: nowMs,
        wasReset: values[1] !== null,
        isSuspect: values[2] !== null,
        size: (this.#starts[i + 1] ?? this.#total) - start,
        isCut: start > maxClaimSize,
      };
    });
  }
}
