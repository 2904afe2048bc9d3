/** The previous release without its console, built from the history of this repository into .cache. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Release 0.1.0. It runs with the packages of this version; when they differ, it needs packages of its own. */
const commit = 'f96522a64c08fa1b5fcd16af66954fd97bde3fb9';

/** True, or the reason why it cannot be built here. */
export function releaseAvailable(): true | string {
  try {
    execFileSync('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: root, stdio: 'ignore' });
    return true;
  } catch {
    return `the git history has no commit ${commit.slice(0, 7)}: run git fetch --unshallow`;
  }
}

/** Its folder; built once. */
export function builtRelease(): string {
  const folder = join(root, '.cache', `release-${commit.slice(0, 7)}`);
  if (existsSync(folder)) return folder;
  mkdirSync(join(root, '.cache'), { recursive: true });
  const draft = mkdtempSync(`${folder}-`);
  try {
    const archive = join(draft, 'source.tar');
    execFileSync('git', ['archive', '--output', archive, commit], { cwd: root });
    execFileSync('tar', ['-xf', archive, '-C', draft]);
    rmSync(archive);
    // No test opens its console, which needs a package that this version does not have.
    writeFileSync(join(draft, 'scripts', 'build-console.mjs'), 'export async function buildConsole() {}\n');
    execFileSync(process.execPath, [join(draft, 'scripts', 'build.mjs')], { cwd: draft, stdio: 'pipe' });
    renameSync(draft, folder);
  } catch (error) {
    rmSync(draft, { recursive: true, force: true });
    // Another test may have built it first.
    if (!existsSync(folder)) throw error;
  }
  return folder;
}
