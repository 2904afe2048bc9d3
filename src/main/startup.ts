/** The store is taken into use: at once, or as soon as it can be. */
import type { Clock } from '../clock.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';

/** Tries for ever; only a ConfigError, which no waiting mends, comes out of the first try. */
export function prepareUntilDone(
  prepare: () => Promise<void>,
  { clock, log, address, signal }: { clock: Clock; log: Logger; address: string; signal: AbortSignal },
): { firstTry: Promise<void>; ended: Promise<void> } {
  const attempt = async (): Promise<'done' | 'again'> => {
    try {
      await prepare();
      return 'done';
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      log.error(
        { err: error, store: address },
        'the store cannot be used yet, trying again: `smart-router doctor` tells more',
      );
      return 'again';
    }
  };
  const first = attempt();
  const ended = (async () => {
    let result = await first.catch(() => 'done' as const);
    for (let delayMs = 1000; result === 'again' && !signal.aborted; delayMs = Math.min(2 * delayMs, 10_000)) {
      await clock.sleep(delayMs, signal);
      if (signal.aborted) return;
      result = await attempt().catch((error: unknown) => {
        log.fatal({ err: error }, 'the store cannot be used: change what is named here and start again');
        return 'done' as const;
      });
    }
  })();
  return { firstTry: first.then(() => undefined), ended };
}
