/** A soak of seconds: everything is sampled, and a leak in the samples is called growth. `npm run soak` runs it for hours. */
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { nativeAvailable } from '../support/engines.js';
import { postgresKinds } from '../support/postgres.js';
import { type Sample, summarise } from './series.js';
import { readSamples, soak, writeSummary } from './soak.js';

const hasPostgres = postgresKinds.some((kind) => kind.available() === true) || 'PostgreSQL is not installed';
const onLinux = process.platform === 'linux' || 'it reads /proc';
const missing = [nativeAvailable(), hasPostgres, onLinux].filter((one) => one !== true);

describe.skipIf(missing.length > 0)(`a soak${missing.map((why) => ` [${why}]`).join('')}`, () => {
  it('samples every process and store, and can be summarised from its file', {
    timeout: 180_000,
  }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'smart-router-soak-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const outcome = await soak({ seconds: 10, folder, sampleEveryMs: 1000, pods: 20, callsPerSecond: 10 });
    expect(outcome.answers['allocate 200']).toBeGreaterThan(10);
    const last = outcome.samples.slice(-3);
    const expected = ['rss', 'heap', 'fds'].flatMap((what) =>
      ['router-0', 'router-1', 'records'].map((name) => `${name}.${what}`),
    );
    // After a late sample the next ones come at once: nothing may have happened in between.
    for (const key of [...expected, 'redis.used', 'keys.call', 'events', 'script.p99.9', 'jobs.bytes', 'cpu'])
      expect(Math.max(...last.map(({ values }) => values[key] ?? 0)), key).toBeGreaterThan(0);
    for (const { values } of last) expect(values['keys.unknown']).toBeUndefined();
    // An interrupted run: its last line is incomplete.
    appendFileSync(outcome.file, '{"seconds": 1');
    const { header, samples } = readSamples(outcome.file);
    expect(samples).toEqual(outcome.samples);
    expect(writeSummary(folder, header, samples)).toEqual(outcome.rows);
    expect(readFileSync(join(folder, 'soak.svg'), 'utf8')).toContain('</svg>');
  });
});

describe('the verdict on a series', () => {
  const definition = { key: 'x', title: 'x', unit: 'bytes' as const };
  /** Two hours; a sawtooth of 40 MB, as a garbage collector makes it. */
  const series = (valueAt: (hours: number) => number): Sample[] =>
    Array.from({ length: 720 }, (_, i) => ({
      seconds: i * 10,
      values: { x: valueAt(i / 360) + (((i * 7) % 31) / 31) * 40e6 },
    }));
  const verdictOf = (valueAt: (hours: number) => number, more = {}) =>
    summarise(series(valueAt), [{ ...definition, ...more }])[0]?.verdict;

  it('is flat for noise, and for growth that ended with the warm-up', () => {
    expect(verdictOf(() => 100e6)).toBe('flat');
    expect(verdictOf((hours) => 100e6 + 50e6 * Math.min(1, hours * 5))).toBe('flat');
    expect(verdictOf(() => 100e6, { block: 'min' })).toBe('flat');
  });

  it('names the growth of a leak, also below a sawtooth', () => {
    expect(verdictOf((hours) => 100e6 + 10e6 * hours)).toMatch(/^grows by (9|10)(\.\d)? MB\/h$/);
    expect(verdictOf((hours) => 100e6 + 10e6 * hours, { block: 'min' })).toMatch(/^grows by /);
  });

  it('does not call a stream below its limit a leak', () => {
    expect(verdictOf((hours) => 100e6 + 10e6 * hours, { cap: 1e9 })).toMatch(/^fills up to /);
  });
});
