// Installs programs that tests and benchmarks need and npm does not have, only on Debian and as root. Elsewhere it prints what
// will be missing: tests are skipped and name the reason, a benchmark names its other client.
import { spawn } from 'node:child_process';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * `commands`: one of them on PATH or in `folders` is enough. Sentinel needs no package: it is `redis-server --sentinel`.
 * `otherwise`: what happens to what it is needed for if it is missing; default: it is skipped.
 * @typedef {{ name: string, commands: string[], folders?: () => string[], service?: string, neededFor: string,
 *   otherwise?: string }} Program
 */

const redis = {
  name: 'redis-server',
  commands: ['redis-server', 'valkey-server'],
  service: 'redis-server',
};
const chromium = { name: 'chromium', commands: ['chromium', 'chromium-browser', 'google-chrome'] };

/** @type {Program[]} */
const testPrograms = [
  { ...redis, neededFor: 'tests on a native Redis, Sentinel and Cluster' },
  { name: 'openssl', commands: ['openssl'], neededFor: 'tests of TLS' },
  {
    name: 'prometheus',
    commands: ['promtool'],
    service: 'prometheus',
    neededFor: 'the checks of metrics, alerts and dashboards by promtool',
  },
  {
    name: 'prometheus-alertmanager',
    commands: ['amtool'],
    service: 'prometheus-alertmanager',
    neededFor: 'the check of the Alertmanager example by amtool',
  },
  { ...chromium, neededFor: 'tests of the console in a browser' },
  {
    name: 'nginx',
    commands: ['nginx'],
    service: 'nginx',
    neededFor: 'the test of the proxy in front of the voice agents',
  },
  {
    name: 'postgresql',
    commands: ['postgres'],
    folders: postgresFolders,
    service: 'postgresql',
    neededFor: 'tests on a native PostgreSQL',
  },
  {
    name: 'pgbouncer',
    commands: ['pgbouncer'],
    folders: () => ['/usr/sbin'],
    service: 'pgbouncer',
    neededFor: 'tests behind PgBouncer',
  },
  { name: 'python3', commands: ['python3'], neededFor: 'tests of the Python client' },
  {
    name: 'python3-venv',
    commands: ['ensurepip'],
    folders: pythonFolders,
    neededFor: 'the installation test of the Python client',
  },
  { name: 'mypy', commands: ['mypy'], neededFor: 'the type check of the Python client' },
  { name: 'zsh', commands: ['zsh'], neededFor: 'tests of the completion in zsh' },
  { name: 'fish', commands: ['fish'], neededFor: 'tests of the completion in fish' },
];

/** @type {Program[]} */
export const benchPrograms = [
  { ...redis, neededFor: 'the measured store', otherwise: 'will be the embedded Valkey, which is slower' },
  { ...chromium, neededFor: 'the benchmarks of the console', otherwise: 'will fail' },
  {
    name: 'wrk',
    commands: ['wrk'],
    neededFor: 'the load of the HTTP benchmark',
    otherwise: 'will be sent by its own process, which takes CPU from the router',
  },
];

/** Debian has a folder per version, not on PATH. */
function postgresFolders() {
  const versions = '/usr/lib/postgresql';
  return existsSync(versions) ? readdirSync(versions).map((version) => join(versions, version, 'bin')) : [];
}

/** The package python3-venv has no command, only the folder of a module. */
function pythonFolders() {
  const names = existsSync('/usr/lib') ? readdirSync('/usr/lib') : [];
  return names.filter((name) => /^python3\.\d+$/.test(name)).map((name) => join('/usr/lib', name));
}

/** @typedef {{ installed: string[], missing: { name: string, reason: string }[] }} SetupResult */

/**
 * Never rejects: `missing` has the programs that could not be installed, with the reason.
 * @param {(line: string) => void} [log]
 * @param {Program[]} [programs]
 * @returns {Promise<SetupResult>}
 */
export async function setupDebian(log = console.log, programs = testPrograms) {
  const absent = programs.filter((program) => !isThere(program));
  const refusal = absent.length === 0 ? undefined : whyNot();
  /** @type {SetupResult} */
  const result = { installed: [], missing: [] };
  if (absent.length === 0) {
    log(`All programs are installed: ${programs.map((program) => program.name).join(', ')}.`);
  } else if (refusal !== undefined) {
    result.missing = absent.map(({ name }) => ({ name, reason: refusal.replace('PACKAGE', name) }));
  } else {
    const names = absent.map((program) => program.name);
    log(
      `Installing ${names.join(', ')} with apt-get; no service is started (SMART_ROUTER_SETUP=off prevents this).`,
    );
    const failure = await install(absent);
    for (const program of absent) {
      if (isThere(program)) result.installed.push(program.name);
      else
        result.missing.push({
          name: program.name,
          reason: failure ?? 'apt-get succeeded, but the program was not found',
        });
    }
  }
  for (const { name, reason } of result.missing) {
    const program = programs.find((one) => one.name === name);
    log(`Without ${name}, ${program?.neededFor} ${program?.otherwise ?? 'will be skipped'}: ${reason}.`);
  }
  return result;
}

/** @param {Program} program */
function isThere(program) {
  const folders = [...(process.env.PATH ?? '').split(delimiter), ...(program.folders?.() ?? [])];
  return program.commands.some((command) =>
    folders.some((folder) => {
      try {
        accessSync(join(folder, command), constants.X_OK);
        return true;
      } catch {
        return false;
      }
    }),
  );
}

/** @returns {string | undefined} with PACKAGE as a placeholder */
function whyNot() {
  if (process.env.SMART_ROUTER_SETUP === 'off') return 'not installed, and SMART_ROUTER_SETUP is off';
  if (!isDebian()) return 'not installed, and this is not Debian: install it by hand';
  if (process.getuid?.() !== 0)
    return 'not installed, and only root may install it: `sudo apt-get install PACKAGE`';
  return undefined;
}

export function isDebian() {
  try {
    return /^(ID|ID_LIKE)=.*\bdebian\b/m.test(readFileSync('/etc/os-release', 'utf8'));
  } catch {
    return false;
  }
}

/**
 * @param {Program[]} absent
 * @returns {Promise<string | undefined>} the reason of a failure
 */
async function install(absent) {
  const names = absent.map((program) => program.name);
  const [allowServices, allowClusters] = [forbidServices(), forbidClusters()];
  const restore = () => {
    allowServices();
    allowClusters();
  };
  // A signal does not run `finally`.
  /** @param {NodeJS.Signals} signal */
  const interrupted = (signal) => {
    restore();
    process.kill(process.pid, signal);
  };
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted);
  try {
    const installNow = () => aptGet('install', '-y', '--no-install-recommends', ...names);
    // Package lists may be missing, as in most images, or outdated.
    if ((await hasCandidates(names)) && (await installNow()) === undefined) return undefined;
    // A failed update may concern another repository; if the installation fails too, it is the better reason.
    const updateFailure = await aptGet('update', '-o', 'APT::Update::Error-Mode=any');
    const failure = await installNow();
    return failure === undefined ? undefined : (updateFailure ?? failure);
  } finally {
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
    restore();
    await disableServices(absent);
  }
}

/** @param {string[]} names */
async function hasCandidates(names) {
  const { output } = await run('apt-cache', ['policy', ...names]);
  return output.split('Candidate: ').length - 1 === names.length && !output.includes('Candidate: (none)');
}

/**
 * @param {string[]} args
 * @returns {Promise<string | undefined>} the reason of a failure
 */
async function aptGet(...args) {
  const options = ['DPkg::Lock::Timeout=60', 'Acquire::Retries=1', 'Acquire::http::Timeout=20'];
  const { code, output } = await run('apt-get', [...options.flatMap((option) => ['-o', option]), ...args]);
  if (code === 0) return undefined;
  const lines = output.split('\n').map((line) => line.trim());
  const error = lines.find((line) => line.startsWith('E: ')) ?? lines.filter(Boolean).at(-1) ?? '';
  return `apt-get ${args[0]} failed: ${error.replace(/^E: /, '').replace(/\.$/, '')}`;
}

/**
 * @param {string} file
 * @param {string[]} args
 * @returns {Promise<{ code: number | null, output: string }>}
 */
function run(file, args) {
  return new Promise((resolve) => {
    let output = '';
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' };
    const child = spawn(file, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    // Long enough for a slow mirror; a hanging one must not block the tests.
    const timer = setTimeout(() => {
      output += `\nE: timed out after five minutes`;
      child.kill('SIGTERM');
    }, 300_000);
    const read = (/** @type {Buffer} */ chunk) => {
      output += chunk;
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.once('error', (error) => {
      clearTimeout(timer);
      resolve({ code: null, output: `E: ${error.message}` });
    });
    child.once('close', (code) => {
      clearTimeout(timer);
      resolve({ code, output });
    });
  });
}

const policy = '/usr/sbin/policy-rc.d';
const policyBefore = `${policy}.before-smart-router`;

/** Debian starts installed services unless this file exits with 101. @returns {() => void} restores the file */
function forbidServices() {
  // Not only `exit 101`, which others write too. Ours is there after a run that was killed.
  const text = '#!/bin/sh\n# By setup-debian.mjs of Smart Router.\nexit 101\n';
  const isOurs = () => existsSync(policy) && readFileSync(policy, 'utf8') === text;
  if (existsSync(policy) && !isOurs()) renameSync(policy, policyBefore);
  writeFileSync(policy, text, { mode: 0o755 });
  let restored = false;
  return () => {
    if (restored) return;
    restored = true;
    if (existsSync(policyBefore)) renameSync(policyBefore, policy);
    else if (isOurs()) rmSync(policy);
  };
}

const clusterSettings = '/etc/postgresql-common';
const noCluster = `${clusterSettings}/createcluster.d/smart-router.conf`;

/**
 * Debian's PostgreSQL creates a database cluster when it is installed, unless this setting is off. It is a separate file: dpkg
 * would ask about a change of the package's own file.
 * @returns {() => void} removes the setting
 */
function forbidClusters() {
  const made = [dirname(noCluster), clusterSettings].filter((folder) => !existsSync(folder));
  mkdirSync(dirname(noCluster), { recursive: true });
  writeFileSync(noCluster, 'create_main_cluster = false\n');
  return () => {
    rmSync(noCluster, { force: true });
    for (const folder of made.splice(0)) if (readdirSync(folder).length === 0) rmdirSync(folder);
  };
}

/** Disables the new services, which systemd would start at the next boot. @param {Program[]} installed */
async function disableServices(installed) {
  if (!existsSync('/run/systemd/system')) return;
  for (const { service } of installed)
    if (service !== undefined) await run('systemctl', ['disable', service]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await setupDebian();
