import { onTestFinished } from 'vitest';
import { StoreConnection } from '../../src/calls/store/connection.js';
import { systemClock } from '../../src/clock.js';
import { until } from '../support/until.js';

/**
 * A connection with a short timeout, after a first reply of the store. Only for commands that must fail: on a busy machine
 * others may take longer.
 */
export async function connectWithTimeout(url: string, commandTimeoutMs: number): Promise<StoreConnection> {
  const connection = new StoreConnection({ url, keyPrefix: 'voice:', commandTimeoutMs, clock: systemClock });
  onTestFinished(() => connection.close());
  await until(() => connection.command('ping', (client) => client.ping()), 'the store answers');
  return connection;
}
