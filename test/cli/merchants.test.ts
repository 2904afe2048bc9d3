/** Backup of merchants: export and import. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { type Engine, startPreferred } from '../support/engines.js';
import { redisAt } from './redis.js';
import { documentOf, runner, startScripted, startTestRouter } from './support.js';

const backup = {
  merchants: {
    acme: { tier: 'standard', pool: 'vip' },
    beta: { fallback: ['overflow', 'merchant:beta'] },
    empty: {},
  },
};

describe('merchants export and import', () => {
  let engine: Engine;
  let router: RunningRouter;
  let folder: string;
  const run = runner(() => router.url);
  beforeAll(async () => {
    engine = await startPreferred();
    router = await startTestRouter(engine.url);
  });
  afterAll(async () => {
    await router.stop();
    await engine.stop();
  });
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'smart-router-merchants-'));
    await redisAt(engine.url, (redis) => redis.del('voice:merchant:config'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  const write = (document: object) => {
    const file = join(folder, 'merchants.json');
    writeFileSync(file, JSON.stringify(document));
    return file;
  };
  const stored = () => redisAt(engine.url, (redis) => redis.hgetall('voice:merchant:config'));

  it('import shows what would change, --apply writes it, and export gives it back', async () => {
    const file = write(backup);
    await run('merchants set acme --tier standard');
    await run('merchants set zeta --tier standard');
    const dry = await run(`merchants import ${file}`);
    expect(dry).toMatchObject({ code: 0, stderr: '' });
    expect(dry.stdout).toMatch(/^acme +changed +\{"tier":"standard"\} +\{"tier":"standard","pool":"vip"\}$/m);
    expect(dry.stdout).toMatch(/^beta +added +- /m);
    expect(dry.stdout).toContain(
      'Dry run: 2 added, 1 changed, 0 unchanged. Nothing was changed; --apply does it. 1 merchant not in the file: unchanged.\n',
    );
    expect(Object.keys(await stored()).sort()).toEqual(['acme', 'zeta']);
    expect((await run(`merchants import ${file} --apply`)).stdout).toContain(
      'Done: 2 added, 1 changed, 0 unchanged.',
    );
    expect(documentOf(await run(`merchants import ${file} --apply --json`))).toMatchObject({
      success: true,
      dry_run: false,
      added: 0,
      changed: 0,
      unchanged: 3,
      not_in_file: ['zeta'],
    });
    const again = await run(`merchants import ${file}`);
    expect(again.stdout).toMatch(/^acme +unchanged +(\{.*\}) +\1$/m);
    await run('merchants delete zeta');
    expect(JSON.parse((await run('merchants export')).stdout)).toEqual(backup);
    expect(documentOf(await run('merchants export --json'))).toEqual({ success: true, ...backup });
  });

  it('export writes a whole file or none, and import reads it, also from standard input', async () => {
    await run(`merchants import ${write(backup)} --apply`);
    const file = join(folder, 'backup.json');
    expect(await run(`merchants export ${file}`)).toMatchObject({
      code: 0,
      stdout: `3 merchants written to ${file}\n`,
    });
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(backup);
    const nowhere = await run(`merchants export ${join(folder, 'missing', 'backup.json')}`);
    expect(nowhere).toMatchObject({ code: 1, stderr: expect.stringContaining('cannot write') });
    expect(readdirSync(folder).sort()).toEqual(['backup.json', 'merchants.json']);
    await redisAt(engine.url, (redis) => redis.del('voice:merchant:config'));
    await run('merchants import - --apply', { input: readFileSync(file, 'utf8') });
    expect(Object.keys(await stored()).sort()).toEqual(['acme', 'beta', 'empty']);
  });

  it('import checks everything first: one wrong entry, and nothing is written', async () => {
    const file = write({ merchants: { ...backup.merchants, 'a b': {}, gamma: { tier: 5, colour: 'red' } } });
    const { code, stderr } = await run(`merchants import ${file} --apply`);
    expect(code).toBe(2);
    expect(stderr).toContain('nothing was changed');
    for (const text of ['"a b": an id has', 'gamma: unknown keys: "colour"', 'gamma: tier must be'])
      expect(stderr).toContain(text);
    expect(await stored()).toEqual({});
    for (const wrong of ['[]', '{"acme":{}}'])
      expect(await run(`merchants import ${wrong}`)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('must be the output of `merchants export`'),
      });
  });

  it('import takes more than one request may have', async () => {
    const many = Object.fromEntries(
      Array.from({ length: 40 }, (_, i) => [`m-${i}`, { fallback: Array(32).fill('x'.repeat(60)) }]),
    );
    const { code, stdout } = await run(`merchants import ${write({ merchants: many })}`);
    expect(code).toBe(0);
    expect(stdout).toContain('40 added');
  });

  it('import that fails in between says how many were written', async () => {
    let puts = 0;
    const server = await startScripted((request) => {
      if (request.method === 'GET') return { status: 200, json: { merchants: [] } };
      puts += 1;
      return puts === 1
        ? { status: 200, json: { merchant_id: 'acme', chain: [], skipped: [] } }
        : {
            status: 503,
            json: { success: false, error: 'the store did not answer', code: 'store_unavailable' },
          };
    });
    try {
      const { code, stdout, stderr } = await runner(() => server.url)(
        `merchants import ${write(backup)} --apply`,
      );
      expect(code).toBe(6);
      expect(stderr).toMatch(/1 of 3 merchants written; beta failed: .* Run it again\./);
      expect(stdout).not.toContain('Done');
    } finally {
      await server.stop();
    }
  });
});
