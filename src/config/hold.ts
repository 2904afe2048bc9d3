/**
 * The rules for calls that wait for a pod: `hold` of the tier configuration, and `hold`, `priority`, `weight`, `max_calls` and
 * `fallback_number` of a merchant. The fields are named as in the API and in the store.
 */
import { formatDuration, parseDuration } from './durations.js';
import {
  isPlainObject,
  type Problem,
  showNames,
  showValue,
  readWholeNumber as wholeNumber,
} from './tiers.js';

export interface Hold {
  /** The longest wait, as a duration. */
  readonly max_wait: string;
  /** The most calls that wait at once. */
  readonly max_waiting: number;
}

export interface CallLimits {
  readonly hold?: Hold;
  /** 0 to 9: a higher one is served first. */
  readonly priority?: number;
  /** Share among merchants of one priority. */
  readonly weight?: number;
  /** The most live calls, over all pools. */
  readonly max_calls?: number;
  /** The number that a held caller is connected to when its wait expires. */
  readonly fallback_number?: string;
}

export const holdLimits = {
  maxWaitMs: [1_000, 3_600_000],
  maxWaiting: [1, 100_000],
  maxWaitingDefault: 1_000,
  priority: [0, 9],
  weight: [1, 100],
  maxCalls: [1, 1_000_000],
} as const;

/** After a problem the result is not used. */
export function readHold(input: unknown, path: string, problem: Problem): Hold | undefined {
  if (!isPlainObject(input)) {
    problem(`${path} must be an object like {"max_wait":"60s"}, got ${showValue(input)}`);
    return undefined;
  }
  const unknown = Object.keys(input).filter((key) => key !== 'max_wait' && key !== 'max_waiting');
  if (unknown.length > 0) {
    problem(`${path} has unknown keys: ${showNames(unknown)}; known are max_wait, max_waiting`);
  }
  const { max_wait, max_waiting = holdLimits.maxWaitingDefault } = input;
  const [min, max] = holdLimits.maxWaitMs;
  const waitMs = typeof max_wait === 'string' ? parseDuration(max_wait) : undefined;
  if (waitMs === undefined || waitMs < min || waitMs > max) {
    problem(
      `${path}.max_wait must be a duration from ${formatDuration(min)} to ${formatDuration(max)} like "60s", got ${showValue(max_wait)}`,
    );
  }
  return {
    max_wait: formatDuration(waitMs ?? min),
    max_waiting: wholeNumber(`${path}.max_waiting`, max_waiting, holdLimits.maxWaiting, problem),
  };
}

export const callLimitKeys: readonly string[] = [
  'hold',
  'priority',
  'weight',
  'max_calls',
  'fallback_number',
];

export function readCallLimits(input: Record<string, unknown>, problem: Problem): CallLimits {
  const given = (key: string) => Object.hasOwn(input, key) && input[key] !== undefined;
  const number = (key: string, range: readonly [number, number]) =>
    given(key) ? { [key]: wholeNumber(key, input[key], range, problem) } : {};
  const hold = given('hold') ? readHold(input.hold, 'hold', problem) : undefined;
  const fallback = input.fallback_number;
  if (given('fallback_number') && !(typeof fallback === 'string' && /^\+?\d{3,15}$/.test(fallback))) {
    problem(`fallback_number must be a telephone number like "+14155550100", got ${showValue(fallback)}`);
  }
  return {
    ...(hold ? { hold } : {}),
    ...number('priority', holdLimits.priority),
    ...number('weight', holdLimits.weight),
    ...number('max_calls', holdLimits.maxCalls),
    ...(given('fallback_number') ? { fallback_number: String(fallback) } : {}),
  };
}

/** For the store: reads what `JSON.stringify` wrote; an unreadable text counts as no rules. */
export function parseStoredHold(text: string | undefined | null): { hold?: Hold; problem?: string } {
  if (!text) return {};
  const problems: string[] = [];
  let hold: Hold | undefined;
  try {
    hold = readHold(JSON.parse(text), 'hold', (problem) => problems.push(problem));
  } catch {
    problems.push('not valid JSON');
  }
  return problems.length === 0 && hold ? { hold } : { problem: problems.join('; ') };
}
