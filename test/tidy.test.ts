/** The style rules as tests, so that reviewers need not check them by hand. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { keyTable } from '../src/calls/store/key-table.mjs';

import { dialect } from './support/dialect.js';

const root = fileURLToPath(new URL('..', import.meta.url));

interface File {
  path: string;
  text: string;
}

function walk(folder: string): string[] {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    const skipped = ['node_modules', 'dist', 'results', 'coverage', '.git', '.cache'].includes(entry.name);
    if (entry.isDirectory()) return skipped ? [] : walk(path);
    return entry.isFile() ? [path] : [];
  });
}

const read = (path: string): File => ({ path, text: readFileSync(join(root, path), 'utf8') });
const everything = walk('')
  .filter(
    (path) =>
      /\.(tsx?|mts|mjs|js|lua|md|json|ya?ml|sql|sh|py|tpl|txt|conf|css|html)$/.test(path) ||
      path.startsWith('.ci/') ||
      path === 'Dockerfile',
  )
  .map(read);
const written = everything.filter(
  ({ path }) => !path.endsWith('.generated.ts') && path !== 'package-lock.json',
);
const under = (folder: string, pattern = /./) =>
  written.filter(({ path }) => path.startsWith(`${folder}/`) && pattern.test(path));
const sources = under('src', /\.(ts|mjs)$/);
const lines = ({ text }: File) => text.split('\n').length - (text.endsWith('\n') ? 1 : 0);

/** Code without its comments; `//` in a URL does not start one. */
const code = ({ text }: File) =>
  text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|[^:'"`\\])\/\/.*$/gm, '$1');

/** `path:line: what`, for every match of the pattern. */
function findings(file: File, pattern: RegExp, text = file.text): string[] {
  return [...text.matchAll(pattern)].map(
    (match) => `${file.path}: ${match[0].trim()}, line ${text.slice(0, match.index).split('\n').length}`,
  );
}

/** The import specifiers of a file. */
function imports(file: File): string[] {
  return [...code(file).matchAll(/(?<!')\b(?:from|import)\s*\(?\s*'([^'\s]+)'/g)].map(
    ([, target = '']) => target,
  );
}

it('finds the source files', () => {
  expect(sources.length).toBeGreaterThan(50);
  expect(under('src/calls/store/lua', /\.lua$/).length).toBeGreaterThan(15);
});

describe('length', () => {
  it('a source file has at most 400 lines', () => {
    const long = sources.filter((file) => lines(file) > 400).map((file) => `${file.path}: ${lines(file)}`);
    expect(long).toEqual([]);
  });

  it('a Lua file has at most 100 lines', () => {
    const long = under('src', /\.lua$/)
      .filter((file) => lines(file) > 100)
      .map((file) => `${file.path}: ${lines(file)}`);
    expect(long).toEqual([]);
  });
});

it('only short-lived signals are combined by AbortSignal.any: use abortWith', () => {
  expect(sources.flatMap((file) => findings(file, /\bAbortSignal\.any\b/g, code(file)))).toEqual([]);
});

describe('time, chance and the environment', () => {
  /** Everything else takes a Clock, so that tests and simulations can put their own in. */
  const mayReadTheTime: Record<string, string> = {
    'src/clock.ts': 'it is the clock',
    'src/embedded/valkey-worker.mjs': 'it is the clock of the store, in a thread of its own',
    'src/records/heartbeat-thread.mjs': 'a thread of its own, started from the file as it is',
  };
  const forbidden =
    /\b(Date\.now|performance\.now|Math\.random|setTimeout|setInterval|setImmediate|AbortSignal\.timeout|process\.hrtime)\b|\bnew Date\(\s*\)|from 'node:timers(\/promises)?'/g;

  it('only the clock reads the time, sets timers or draws random numbers', () => {
    const found = sources
      .filter(({ path }) => !(path in mayReadTheTime))
      .flatMap((file) => findings(file, forbidden, code(file)));
    expect(found).toEqual([]);
  });

  it.each([
    'Date.now()',
    'setTimeout(f, 1)',
    'AbortSignal.timeout(1)',
    'new Date()',
    "import { setTimeout } from 'node:timers/promises'",
    'const { random } = Math, x = Math.random',
  ])('finds %s in code, and not in a comment', (text) => {
    const file = { path: 'x.ts', text: `${text}; // 'redis://x'` };
    expect(findings(file, forbidden, code(file))).not.toEqual([]);
    const comment = { path: 'x.ts', text: `/** ${text} */\nconst a = 1; // ${text}` };
    expect(findings(comment, forbidden, code(comment))).toEqual([]);
  });

  it('every exception is still needed', () => {
    const idle = Object.keys(mayReadTheTime).filter((path) => {
      const file = sources.find((one) => one.path === path);
      return !file || findings(file, forbidden, code(file)).length === 0;
    });
    expect(idle).toEqual([]);
  });

  it('only the command line hands the environment on, and only the configuration reads it', () => {
    const readers = [...sources, ...under('bin')]
      .filter(({ path }) => !/^(bin\/.*|src\/cli\/index\.ts|src\/config\/.*\.ts)$/.test(path))
      .flatMap((file) => findings(file, /\bprocess\.env\b/g, code(file)));
    expect(readers).toEqual([]);
  });
});

describe('folders', () => {
  /** Each folder imports only those of earlier rows; `root` is the files directly in src. */
  const order = [
    ['root'],
    ['config', 'observe', 'embedded', 'client', 'terminal'],
    ['records', 'calls', 'agent'],
    ['workflows', 'cluster', 'leadership'],
    ['pool'],
    ['http'],
    ['main'],
    ['demo'],
    ['cli'],
    ['index'],
  ];
  const row = (folder: string) => order.findIndex((folders) => folders.includes(folder));

  /** The folder of a path below src: `calls` of src/calls/store/keys.ts, `index` of the entry of the package. */
  function folderOf(path: string): string {
    const [, first = '', second] = path.split('/');
    return second !== undefined ? first : /^index\.[jt]s$/.test(first) ? 'index' : 'root';
  }

  const edges = sources.flatMap((file) =>
    imports(file)
      .filter((target) => target.startsWith('.'))
      .map((target) =>
        relative(root, resolve(root, dirname(file.path), target))
          .split(sep)
          .join('/'),
      )
      .filter((target) => target.startsWith('src/') && folderOf(target) !== folderOf(file.path))
      .map((target) => ({
        text: `${file.path} imports ${target}`,
        isAllowed: row(folderOf(target)) < row(folderOf(file.path)),
      })),
  );

  it('import only folders of earlier rows, so that there is no cycle', () => {
    expect(edges.length).toBeGreaterThan(300);
    const folders = new Set(sources.map(({ path }) => folderOf(path)));
    expect([...folders].filter((folder) => row(folder) < 0)).toEqual([]);
    const wrong = edges.filter(({ isAllowed }) => !isAllowed);
    expect(wrong.map(({ text }) => text)).toEqual([]);
  });

  it('the client imports only the clock, the version and Node', () => {
    const packages = under('src/client', /\.ts$/).flatMap((file) =>
      imports(file).filter((target) => !/^(\.\/|\.\.\/(clock|version)\.js$|node:)/.test(target)),
    );
    expect(packages).toEqual([]);
  });

  it('the terminal code imports only the clock and Node', () => {
    const other = under('src/terminal', /\.ts$/).flatMap((file) =>
      imports(file).filter((target) => !/^(\.\/|\.\.\/clock\.js$|node:)/.test(target)),
    );
    expect(other).toEqual([]);
  });

  it('no folder or file has a catch-all name', () => {
    const buckets = sources.filter(({ path }) =>
      /(^|\/)(utils?|common|helpers?|misc|types)(\/|\.ts$)/.test(path),
    );
    expect(buckets.map(({ path }) => path)).toEqual([]);
  });
});

describe('Lua scripts', () => {
  const scripts = under('src/calls/store/lua', /lua\/[^/]+\.lua$/);
  const header = ({ text }: File) => /^(?:--(?!#).*\n)+/.exec(text)?.[0] ?? '';

  it.each(scripts.map((file) => [file.path.split('/').at(-1), file] as const))(
    '%s has a header with its purpose, arguments and result',
    (_, file) => {
      expect(header(file)).toMatch(/^-- [A-Z]/);
      expect(header(file)).toContain('-- Result: ');
      const body = file.text.slice(header(file).length);
      const used = [...body.matchAll(/\bARGV\[(\d+)\]/g)].map(([, index]) => Number(index));
      const named = [...header(file).matchAll(/\b(\d+)(?:\.\.)? [a-zA-Z'("]/g)].map(([, i]) => Number(i));
      expect(named).toEqual(expect.arrayContaining([...new Set(used)].filter((index) => index > 1)));
      if (used.some((index) => index > 1)) expect(header(file)).toContain('-- ARGV: 2 ');
    },
  );

  it('every include stands at the top, except on the rare paths of the busiest scripts and of what they include', () => {
    const scattered = under('src/calls/store/lua').filter(({ path, text }) => {
      const isBusiest = /\/(allocate|explain|release|lib\/calls|lib\/failures|lib\/pods)\.lua$/.test(path);
      const rest = text.replace(/^(?:--(?!#).*\n)*(?:--#include .*\n)*/, '');
      return (isBusiest ? /^--#include/m : /--#include/).test(rest);
    });
    expect(scattered.map(({ path }) => path)).toEqual([]);
  });

  it('only `place`, and `release` on its quick path, make a pod available: a waiting call gets it first', () => {
    const added = under('src/calls/store/lua').flatMap(({ path, text }) =>
      [...text.matchAll(/'(?:[SZ]ADD|SMOVE|[SZ](?:UNION|INTER|DIFF)STORE|ZRANGESTORE)', ([\w.]+)/g)].flatMap(
        ([, key = '']) =>
          /^Key\.(?!available$|merchant_pods$)/.test(key) ? [] : [`${path.split('/lua/')[1]} ${key}`],
      ),
    );
    expect(added.sort()).toEqual([
      'allocate.lua scores', // of the pod that it takes
      'lib/pods.lua available_key',
      'lib/pods.lua available_key',
      'release.lua Key.available',
    ]);
    const [quick = ''] = read('src/calls/store/lua/release.lua').text.split(
      "  if load == 0 then\n    redis.pcall('SADD', Key.available",
    );
    expect(quick).toMatch(/\n {2}if hands_over then\n.*\n {4}load = hand_over\(.*\n {2}end\n$/);
    expect(quick).toMatch(/\nif not merchant and .*(?:\n {2}.*)+\n$/);
  });

  it('every step that ends calls then serves the merchants that are below their limits again', () => {
    const ends = /\b(?:end_call|end_expired|reclaim|lose_calls|forget)\(/;
    const steps = under('src/calls/store/lua').flatMap(({ path, text }) => {
      const [name = ''] = path.split('/lua/').slice(1);
      // These functions are called in loops; the script that calls them serves at its end.
      if (/^lib\/(calls|reclaim|removal)\.lua$/.test(name)) return [];
      const code = text.replace(/--.*$/gm, '');
      const parts = code.split(name.startsWith('lib/') ? /^end$/m : /^return |^ {2}return \{ 'ok'/m);
      return parts.flatMap((part) => (ends.test(part) ? [{ name, part }] : []));
    });
    expect(steps.length).toBeGreaterThan(7);
    const forgotten = steps.filter(({ part }) => !part.slice(part.search(ends)).includes('serve_freed()'));
    expect(forgotten.map(({ name }) => name)).toEqual([]);
  });

  it.each(under('src/calls/store/lua/lib').map((file) => [file.path.split('/').at(-1), file] as const))(
    'lib/%s opens with a comment',
    (_, file) => {
      expect(file.text.replace(/^(--#include .*\n)*/, '')).toMatch(/^-- \S/);
    },
  );
});

describe('Redis keys', () => {
  const table = 'src/calls/store/key-table.mjs';
  const parts = Object.values(keyTable).flatMap(({ pattern }) => pattern.split(/\{\w+\}/));
  const byHand = new RegExp(
    // A prefix followed by text, or a part of a key at the start of a string or after a value in one.
    `\\bP \\.\\.|[pP]refix\\}[a-z]|['"\`}](${parts.filter((part) => part.includes(':')).join('|')})(?![ {])`,
    'g',
  );

  it('are written in the key table only', () => {
    const scripts = under('src/calls/store/lua', /\.lua$/).flatMap((file) =>
      findings(file, byHand, file.text.replace(/--.*$/gm, '')),
    );
    const modules = sources
      .filter(({ path }) => path !== table && !path.startsWith('src/records/'))
      .flatMap((file) => findings(file, byHand, code(file)));
    expect([...scripts, ...modules]).toEqual([]);
  });

  it('are documented in ARCHITECTURE.md, or for operators in docs/operations.md', () => {
    const cells = [read('ARCHITECTURE.md'), read('docs/operations.md')].flatMap(({ text }) =>
      [...text.matchAll(/^\| (`[^|]*)\|/gm)].map(([, cell = '']) => cell),
    );
    const shape = (key: string) =>
      key
        .replace(/^voice:/, '')
        .replace('{tierPool}', 'pool:{tier}')
        .replace('{merchantPool}', 'merchant:{id}')
        .replace(/\{\w+\}/g, '{}');
    const documented = new Set(
      cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, key = '']) => shape(key))),
    );
    const patterns = Object.values(keyTable).map(({ pattern }) => pattern);
    expect(patterns.filter((pattern) => !documented.has(shape(pattern)))).toEqual([]);
  });

  it.each(["P .. 'x'", "'pod:calls:' .. pod", "pool .. ':assigned'", 'prefix}pools', 'pool}:calls'])(
    'finds %s',
    (text) => expect(findings({ path: 'x.lua', text }, byHand)).toHaveLength(1),
  );
});

describe('leftovers', () => {
  // Put together here, so that this file does not find itself.
  const marks = new RegExp(`\\b(${['TO' + 'DO', 'FIX' + 'ME', 'X' + 'XX', 'HA' + 'CK'].join('|')})\\b`, 'g');
  const own = ({ path }: File) => path === 'test/tidy.test.ts';

  it('no file has a mark for open work', () => {
    expect(written.flatMap((file) => findings(file, marks))).toEqual([]);
  });

  it('no test keeps the others from running', () => {
    const only = /\b(it|test|describe|suite|bench)(\.\w+)*\.only\b/g;
    expect(under('test').flatMap((file) => findings(file, only, code(file)))).toEqual([]);
  });

  it('no test is skipped without a reason in its name', () => {
    const off = /\b(it|test|describe)\.(skip|todo|fails)\(\s*['"`](?![^'"`]*[[(:])[^\n]*/g;
    expect(under('test').flatMap((file) => findings(file, off, code(file)))).toEqual([]);
  });

  it('no file has a path of a developer’s machine', () => {
    const paths = /(?<![\w.$}{-])\/(home|Users|root|work)\/[\w.-]+|\b[A-Z]:\\\\?Users\b/g;
    const found = [...written, read('package-lock.json')].filter((file) => !own(file));
    expect(found.flatMap((file) => findings(file, paths))).toEqual([]);
  });
});

it('no Markdown table is split by a blank line', () => {
  const headless = written
    .filter(({ path }) => path.endsWith('.md'))
    .flatMap((file) => findings(file, /(?<=^|\n\n)\|[^\n]*(?!\n\|[ :|-]+\n)(?=\n|$)/g));
  expect(headless).toEqual([]);
});

describe('dependencies', () => {
  const manifest = JSON.parse(read('package.json').text) as Record<
    string,
    Record<string, string> | undefined
  >;
  const runtime = Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies });

  it('every version is exact', () => {
    const all = { ...manifest.dependencies, ...manifest.optionalDependencies, ...manifest.devDependencies };
    expect(Object.entries(all).filter(([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))).toEqual(
      [],
    );
  });

  it('the lock file has no download address, so that every registry works', () => {
    expect(findings(read('package-lock.json'), /"resolved":.*|https?:\/\/[^"]*\.tgz/g)).toEqual([]);
  });

  interface LockEntry {
    dev?: boolean;
    devOptional?: boolean;
    engines?: { node?: string };
    resolved?: string;
    optionalDependencies?: Record<string, string>;
  }

  /** Node's way: beside the package's own modules first, then in each folder above. */
  function missingOptional(packages: Record<string, LockEntry>): string[] {
    const isLocked = (from: string, name: string): boolean => {
      if (`${from}${from && '/'}node_modules/${name}` in packages) return true;
      return from !== '' && isLocked(from.slice(0, Math.max(0, from.lastIndexOf('/node_modules/'))), name);
    };
    return Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies)
        .filter((name) => !isLocked(path, name))
        .map((name) => `${path || 'package.json'} needs ${name}`),
    );
  }

  it('the lock file has every optional package, because npm ci refuses on the platform whose one is missing', () => {
    const { packages } = JSON.parse(read('package-lock.json').text) as {
      packages: Record<string, LockEntry>;
    };
    expect(Object.values(packages).some((entry) => entry.optionalDependencies)).toBe(true);
    expect(missingOptional(packages)).toEqual([]);
    expect(Object.keys(packages).filter((path) => packages[path]?.resolved !== undefined)).toEqual([]);
  });

  it('an optional package is found beside its parent or above, and missed where it is neither', () => {
    const optionalDependencies = { x: '1.0.0' };
    const parent = 'node_modules/@s/a/node_modules/b';
    for (const place of [`${parent}/node_modules/x`, 'node_modules/@s/a/node_modules/x', 'node_modules/x']) {
      expect(missingOptional({ [parent]: { optionalDependencies }, [place]: {} })).toEqual([]);
    }
    expect(
      missingOptional({ [parent]: { optionalDependencies }, 'node_modules/c/node_modules/x': {} }),
    ).toEqual([`${parent} needs x`]);
    expect(missingOptional({ '': { optionalDependencies } })).toEqual(['package.json needs x']);
  });

  /** Of `^18.19.0 || >=20.6.0` and the like: whether some Node 20 will do. */
  const acceptsNode20 = (range: string) =>
    range.split('||').some((alternative) => {
      const [, operator, major] = /^\s*(>=|\^|)\s*v?(\d+|\*)/.exec(alternative) ?? [];
      return major === '*' || (operator === '>=' ? Number(major) <= 20 : Number(major) === 20);
    });

  it('every package that a consumer gets runs on Node 20', () => {
    const { packages } = JSON.parse(read('package-lock.json').text) as {
      packages: Record<string, LockEntry>;
    };
    const tooNew = Object.entries(packages).filter(
      ([, { dev, devOptional, engines }]) =>
        !dev && !devOptional && engines?.node !== undefined && !acceptsNode20(engines.node),
    );
    expect(tooNew.map(([path, { engines }]) => `${path} needs Node ${engines?.node}`)).toEqual([]);
    expect([
      acceptsNode20('^18.19.0 || >=20.6.0'),
      acceptsNode20('>=22'),
      acceptsNode20('^18 || ^22'),
    ]).toEqual([true, false, false]);
  });

  it('package.json has no overrides, because npm applies none of a dependency', () => {
    expect(manifest.overrides).toBeUndefined();
  });

  it('every runtime dependency is justified in ARCHITECTURE.md', () => {
    const { text } = read('ARCHITECTURE.md');
    expect(runtime.filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
  });

  it('every package that the sources import is a runtime dependency, and every one of them is used', () => {
    const packages = sources.flatMap(imports).filter((name) => !/^(\.|node:)/.test(name));
    const used = new Set(packages.map((name) => /^(@[^/]+\/)?[^/]+/.exec(name)?.[0] ?? name));
    const known = sources.map(({ text }) => text).join('\n');
    expect([...used].filter((name) => !runtime.includes(name))).toEqual([]);
    // Fastify's own; named so that consumers get the version that runs on Node 20.
    const held = ['light-my-request'];
    expect(
      runtime.filter((name) => !used.has(name) && !known.includes(name) && !held.includes(name)),
    ).toEqual([]);
  });
});

describe('language', () => {
  // Of JSON, only dashboards have texts. `is None` is Python.
  const texts = written
    .filter(({ path }) => !path.endsWith('.json') || path.startsWith('deploy/grafana/'))
    .filter(({ path }) => path !== 'test/support/dialect.ts')
    .map((file) => ({ ...file, text: file.text.replace(/\bis None\b/g, 'is_None') }));
  const maxPerThousandLines = 1;

  it(`has at most ${maxPerThousandLines} dialect words per 1,000 lines`, () => {
    const found = texts.flatMap((file) => findings(file, dialect));
    const total = texts.reduce((sum, file) => sum + lines(file), 0);
    expect((1000 * found.length) / total, found.join('\n')).toBeLessThan(maxPerThousandLines);
  });

  it('log lines, errors and output have none', () => {
    // The contents of string literals, without comments.
    const literals = /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g;
    // `nobody` is a user of the operating system in that file.
    const checked = sources.filter(({ path }) => path !== 'src/embedded/postgres-user.ts');
    const found = checked.flatMap((file) =>
      [...code(file).matchAll(literals)].flatMap(([text]) => findings({ path: file.path, text }, dialect)),
    );
    // A page has texts outside of strings.
    const pages = under('console/src', /\.tsx?$/).flatMap((file) => findings(file, dialect, code(file)));
    expect([...found, ...pages]).toEqual([]);
  });

  it('shipped files of deploy and the README have none', () => {
    const shipped = texts.filter(({ path }) => /^(deploy\/|Dockerfile$|README\.md$)/.test(path));
    expect(shipped.length).toBeGreaterThan(40);
    expect(shipped.flatMap((file) => findings(file, dialect))).toEqual([]);
  });

  it.each(['nobody reads it', 'the pod comes back', 'what was lost is told of'])('finds: %s', (text) =>
    expect(findings({ path: 'x.md', text }, dialect)).not.toEqual([]),
  );
});
