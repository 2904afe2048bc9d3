/**
 * Durations in Go's notation (`500ms`, `30s`, `1h30m`, `1.5s`), which operators already use. In code, a duration is a whole
 * number of milliseconds.
 */

/** The longest Node timer (24.8 days); with a longer time a timer fires at once. */
export const durationMaxMs = 2_147_483_647;

const nanosecondsPer: Readonly<Record<string, bigint>> = {
  ns: 1n,
  us: 1_000n,
  µs: 1_000n, // U+00B5
  μs: 1_000n, // U+03BC
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
};
const part = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/y;
const charsMax = 64;

/**
 * Milliseconds, or undefined if the text is not a duration from 0 to `durationMaxMs`. A remainder below one
 * millisecond is rounded up, so that only zero becomes 0 (which means `off` in some places).
 */
export function parseDuration(text: string): number | undefined {
  if (text === '0') return 0;
  if (text === '' || text.length > charsMax) return undefined;
  // Decimal arithmetic in whole nanoseconds: 0.29 * 1000 is 290 here, and 1.005s is 1005.
  let total = 0n;
  part.lastIndex = 0;
  while (part.lastIndex < text.length) {
    const match = part.exec(text);
    if (!match) return undefined;
    const [, number = '', unit = ''] = match;
    const [whole = '', fraction = ''] = number.split('.');
    const scaled = BigInt(whole + fraction) * (nanosecondsPer[unit] ?? 0n);
    const divisor = 10n ** BigInt(fraction.length);
    total += (scaled + divisor - 1n) / divisor;
  }
  const ms = (total + 999_999n) / 1_000_000n;
  return ms <= BigInt(durationMaxMs) ? Number(ms) : undefined;
}

/** The shortest text `parseDuration` reads back as the same number: `15m`, `1h30m`, `1m1.5s`, `0s`. */
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms)) return String(ms);
  const rounded = Math.round(ms);
  if (rounded < 0) return `-${formatDuration(-rounded)}`;
  if (rounded === 0) return '0s';
  if (rounded < 1_000) return `${rounded}ms`;
  const hours = Math.floor(rounded / 3_600_000);
  const minutes = Math.floor((rounded % 3_600_000) / 60_000);
  const seconds = (rounded % 60_000) / 1_000;
  return `${hours ? `${hours}h` : ''}${minutes ? `${minutes}m` : ''}${seconds ? `${seconds}s` : ''}`;
}
