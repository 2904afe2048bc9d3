/**
 * The rows of one claim while they arrive. Values of rows beyond `maxClaimSize` are not kept: 60 rows of 15 MB would otherwise
 * end the process before it could return any. The first row is always kept.
 */
import type { CustomTypesConfig, PoolClient } from 'pg';
import type { Claim } from './store-types.js';
import type { Row } from './workflow.js';

/** In characters. A queue holds two claims at most; parsed JSON takes several times the memory of its text. */
export const maxClaimSize = 16 * 1024 * 1024;

/** Our own columns in a claimed row: its first ones. */
const ownColumns = ['token', 'is_back', 'is_suspect', 'id'].map((name) => `smart_router.${name}`);

export class ClaimedRows {
  /** One per row. Empty with a driver that has its own parsers (pg-native). */
  #sizes: Pick<Claim, 'size' | 'isCut'>[] = [];

  /** The parsers of `client`, which also measure the rows. */
  types(client: PoolClient): CustomTypesConfig {
    // A statement that is retried starts again.
    const sizes: Pick<Claim, 'size' | 'isCut'>[] = [];
    this.#sizes = sizes;
    let total = 0;
    let row = { size: 0, isCut: false };
    let columns = 0;
    // The driver asks once per column, in their order.
    const getTypeParser = (...type: Parameters<typeof client.getTypeParser>) => {
      const parse = client.getTypeParser(...type);
      const column = columns;
      columns += 1;
      return (value: string) => {
        if (column === 0) {
          row = { size: 0, isCut: total > maxClaimSize };
          sizes.push(row);
        }
        row.size += value.length;
        total += value.length;
        return row.isCut && column >= ownColumns.length ? undefined : parse(value);
      };
    };
    return { getTypeParser: getTypeParser as CustomTypesConfig['getTypeParser'] };
  }

  claims(rows: Row[], nowMs: number): Claim[] {
    return rows.map((row, i) => {
      const { size, isCut } = this.#sizes[i] ?? { size: 0, isCut: false };
      const claim = {
        id: String(row['smart_router.id']),
        token: String(row['smart_router.token']),
        record: row,
        confirmedMs: nowMs,
        wasReset: row['smart_router.is_back'] === true,
        isSuspect: row['smart_router.is_suspect'] === true,
        size,
        isCut,
      };
      for (const name of ownColumns) delete row[name];
      return claim;
    });
  }
}
