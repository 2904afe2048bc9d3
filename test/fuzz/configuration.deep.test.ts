/** The environment with any value in any variable: a configuration, or every problem at once and nothing else. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { configTable, describeConfig, loadConfig } from '../../src/config/config.js';
import { durationMaxMs, formatDuration, parseDuration } from '../../src/config/durations.js';
import { ConfigError } from '../../src/errors.js';
import { fuzzingAtOnce } from './runs.js';
import { damaged, oddText } from './values.js';

const durations = fc.oneof(
  fc.constantFrom(
    '0',
    '0s',
    '1ns',
    '500ms',
    '30s',
    '1h30m',
    '24h',
    '2147483647ms',
    '2147483648ms',
    '1.5s',
    '1µs',
  ),
  fc
    .array(
      fc.tuple(
        fc.double({ min: 0, max: 1e6, noNaN: true }),
        fc.constantFrom('ns', 'us', 'ms', 's', 'm', 'h', 'd'),
      ),
      {
        maxLength: 4,
      },
    )
    .map((parts) => parts.map(([number, unit]) => `${number}${unit}`).join('')),
);
const addresses = [
  'redis://user:hunter2-secret@h:1/0',
  'rediss://:hunter2-secret@h',
  'postgres://u:hunter2-secret@h/d',
  'https://example.com/hook?token=hunter2-secret',
];
const plausible = fc.oneof(
  fc.constantFrom(...addresses),
  durations,
  fc.constantFrom(
    ...['true', 'false', 'off', 'none', 'embedded', 'static', 'kubernetes', 'registered', 'exit', 'follow'],
    ...['a,b=gold,c=merchant:acme', '{"gold":10}', '127.0.0.1', '::1', '[::1]', '0.0.0.0', '10.0.0.0/8,::1'],
    ...['redis+cluster://h:1', 'redis+sentinel://h:1,i:2/name'],
    ...['wss://x/{pod}', '{base}/{pod}{flow}'],
    ...['name=value,other=value', '0.5', 'debug', 'json', 'pretty'],
  ),
  fc.integer().map(String),
);
const text = fc.oneof(
  { weight: 3, arbitrary: plausible },
  { weight: 2, arbitrary: damaged(plausible) },
  { weight: 2, arbitrary: oddText },
);
const names = configTable.map(({ name }) => name);
const environment = fc.dictionary(fc.constantFrom(...names), text, { maxKeys: 12 });

describe('the environment with any values', () => {
  it('is a configuration, or one error that names every problem on a line of its own', () => {
    fc.assert(
      fc.property(environment, fc.constantFrom('serve', 'demo'), (env, mode) => {
        const rows = describeConfig(env, mode);
        // In a damaged URL the password cannot be located.
        const isTold = Object.values(env).some(
          (value) => value.includes('hunter2') && !addresses.includes(value),
        );
        const hidden = (shown: string) => isTold || !shown.includes('hunter2-secret');
        expect(rows.map(({ name }) => name)).toEqual(names);
        for (const { value } of rows) expect(hidden(value), value).toBe(true);
        let config: ReturnType<typeof loadConfig>;
        try {
          config = loadConfig(env, mode);
        } catch (error) {
          expect(error).toBeInstanceOf(ConfigError);
          const { problems } = error as ConfigError;
          expect(problems.length).toBeGreaterThan(0);
          for (const problem of problems) {
            expect(problem).toMatch(/^[A-Z][A-Z0-9_]+(:| must)/);
            expect(problem).not.toMatch(/[\p{Cc}\u2028\u2029\u202e]/u);
            expect(hidden(problem), problem).toBe(true);
            expect(problem.length).toBeLessThan(2000);
          }
          return;
        }
        expect(config.mode).toBe(mode);
        for (const value of Object.values(config))
          if (typeof value === 'number') expect(Number.isFinite(value)).toBe(true);
      }),
      fuzzingAtOnce(500),
    );
  });

  it('has one problem for each wrong variable, independent of the others', () => {
    fc.assert(
      fc.property(fc.constantFrom(...names), text, (name, value) => {
        const problemsOf = (env: NodeJS.ProcessEnv) => {
          try {
            loadConfig(env);
            return [];
          } catch (error) {
            return (error as ConfigError).problems;
          }
        };
        const alone = problemsOf({ [name]: value }).filter((line) => line.startsWith(`${name}:`));
        const other = name === 'HTTP_PORT' ? 'HTTP_HOST' : 'HTTP_PORT';
        const together = problemsOf({ [name]: value, [other]: 'no such thing' });
        expect(together).toEqual(expect.arrayContaining(alone));
        expect(together.some((line) => line.startsWith(other))).toBe(true);
      }),
      fuzzingAtOnce(300),
    );
  });
});

describe('a duration of any text', () => {
  it('is whole milliseconds that print and read back as themselves, or nothing', () => {
    fc.assert(
      fc.property(fc.oneof(durations, damaged(durations), oddText), (value) => {
        const ms = parseDuration(value);
        if (ms === undefined) return;
        expect(Number.isInteger(ms) && ms >= 0 && ms <= durationMaxMs).toBe(true);
        expect(parseDuration(formatDuration(ms))).toBe(ms);
      }),
      fuzzingAtOnce(1000),
    );
  });
});
