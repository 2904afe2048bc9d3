/** Two replicas never lead at once; after all faults have ended, one leads. */
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { Election, type ElectionOptions } from '../../src/leadership/election.js';
import { propertyRuns } from '../support/property-runs.js';
import { anyScenario, play } from './scenario.js';
import { type NewElection, SharedRecord } from './world.js';

const real: NewElection = (options) => new Election(options);

describe('of several electors', { timeout: 120_000 }, () => {
  it('at most one leads at any moment, and one does soon after everything has healed', async () => {
    await fc.assert(
      fc.asyncProperty(anyScenario, (scenario) => play(scenario, real)),
      { numRuns: propertyRuns(300) },
    );
  });
});

interface Control {
  broken: string;
  file: 'election' | 'observed-lock' | 'term';
  line: string;
  becomes: string;
}

/** Each breaks one line, named by its text: a file that changes shape fails here instead of breaking nothing. */
const controls: Control[] = [
  {
    broken: 'the deadline counts from the reply',
    file: 'term',
    line: 'this.#deadlineMs = sentAtMs + renewDeadlineMs;',
    becomes: 'this.#deadlineMs = clock.monotonic() + renewDeadlineMs;',
  },
  {
    broken: 'a paused leader trusts its timer alone',
    file: 'term',
    line: 'return this.#end === undefined && this.leftMs > 0;',
    becomes: 'return this.#end === undefined;',
  },
  {
    broken: 'a leader whose request hangs has no timer',
    file: 'term',
    line: "this.#cancelTimer = clock.after(this.leftMs, () => this.finish('expired'));",
    becomes: '',
  },
  {
    broken: 'a renewal that came too late revives the term',
    file: 'term',
    line: 'if (this.isCurrent) this.#setDeadline(sentAtMs);',
    becomes: 'this.#setDeadline(this.#options.clock.monotonic());',
  },
  {
    broken: 'followers trust the times in the record',
    file: 'observed-lock',
    line: 'const unchangedMs = this.clock.monotonic() - this.#sinceMs;',
    becomes: 'const unchangedMs = this.clock.now() - Date.parse(record.renewedAt);',
  },
  {
    broken: 'a record that vanished is free at once',
    file: 'observed-lock',
    line: ': !this.#isMissing && this.#record !== undefined;',
    becomes: ': ((this.#record = undefined), false);',
  },
  {
    broken: 'a record of the same name is taken at once',
    file: 'election',
    line: 'if (!this.#observed.isFreeFor(this.#writer) ||',
    becomes: 'if ((!this.#observed.isFreeFor(this.#writer) && this.#observed.alive.holder !== identity) ||',
  },
  {
    broken: 'a renewal whose fate is unknown counts as done',
    file: 'election',
    line: 'await this.#write(record, version, this.#timeoutMs(term));',
    becomes: 'await this.#write(record, version, 3000).catch(() => ({ version }));',
  },
];

describe('negative controls', { timeout: 300_000 }, () => {
  const folders: string[] = [];
  afterEach(() => {
    for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
  });

  async function broken({ file, line, becomes }: Control): Promise<NewElection> {
    const folder = mkdtempSync(join(tmpdir(), 'election-'));
    folders.push(folder);
    mkdirSync(join(folder, 'leadership'));
    for (const file of ['errors.ts', 'loop.ts'])
      copyFileSync(fileURLToPath(new URL(`../../src/${file}`, import.meta.url)), join(folder, file));
    for (const name of ['election', 'term', 'observed-lock', 'leadership']) {
      const path = fileURLToPath(new URL(`../../src/leadership/${name}.ts`, import.meta.url));
      let text = readFileSync(path, 'utf8');
      if (name === file) {
        if (!text.includes(line)) throw new Error(`${name}.ts does not have this: ${line}`);
        text = text.replaceAll(line, () => becomes);
      }
      writeFileSync(join(folder, 'leadership', `${name}.ts`), text);
    }
    const url = pathToFileURL(join(folder, 'leadership', 'election.ts')).href;
    const module = (await import(/* @vite-ignore */ url)) as { Election: typeof Election };
    return (options: ElectionOptions) => new module.Election(options);
  }

  /**
   * With this seed a search takes at most 174 scenarios, and always the same number. A change to the election changes that:
   * over 24 other seeds the rarest control takes 460 on average, and a search of 15,000 misses it once in a billion times.
   */
  const search = { seed: 20_261_115, numRuns: 15_000, endOnFailure: true };
  const fate = async (newElection: NewElection, record?: () => SharedRecord) => {
    const result = await fc.check(
      fc.asyncProperty(anyScenario, (scenario) => play(scenario, newElection, record?.())),
      search,
    );
    return String(result.errorInstance ?? 'not caught');
  };

  it.each(controls)('are caught: $broken', async (control) => {
    expect(await fate(await broken(control))).toMatch(/two lead|two do a leader's work/);
  });

  it('are caught: the lock swaps without comparing', async () => {
    class Careless extends SharedRecord {
      protected override isCurrent(): boolean {
        return true;
      }
    }
    expect(await fate(real, () => new Careless())).toMatch(/two lead|two do a leader's work/);
  });
});
