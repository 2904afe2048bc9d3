import { onTestFinished } from 'vitest';
import { StoreConnection } from '../../src/calls/store/connection.js';
import { systemClock } from '../../src/clock.js';
import { until } from '../support/until.js';

/**
 * A connection with a short timeout, which the store has answered once. Only for what must fail: on a busy machine any other
 * command may take longer.
 */
export async function connectHasty(url: string, commandTimeoutMs: number): Promise<StoreConnection> {
  const connection = new StoreConnection({ url, keyPrefix: 'voice:', commandTimeoutMs, clock: systemClock });
  onTestFinished(() => connection.close());
  await until(() => connection.command('ping', (client) => client.ping()), 'the store answers');
  return connection;
}
