/** Waits for a condition instead of a time. */
// Long enough for a busy machine: only a condition that never holds takes all of it.
const patienceMs = 40_000;

/** Resolves to the first value of `condition` that is neither false nor undefined; an error counts as "not yet". */
export async function until<T>(
  condition: () => T | false | undefined | Promise<T | false | undefined>,
  what: string,
  timeoutMs: number = patienceMs,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  let last: unknown;
  for (let waitMs = 1; ; waitMs = Math.min(waitMs * 2, 50)) {
    try {
      const value = await condition();
      if (value !== false && value !== undefined) return value;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (performance.now() > deadline) {
      throw new Error(`timed out after ${timeoutMs} ms waiting until ${what}`, { cause: last });
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}
