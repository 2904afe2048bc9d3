/** Adopts the store at the start: at once, or as soon as it responds. */
import type { Clock } from '../clock.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';

/** Retries until it succeeds. Only a ConfigError, which no retry can fix, rejects the first try. */
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
        'store not usable yet; retrying (`smart-router doctor` shows details)',
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
        log.fatal({ err: error }, 'store not usable; fix the configuration and restart');
        return 'done' as const;
      });
    }
  })();
  return { firstTry: first.then(() => undefined), ended };
}
