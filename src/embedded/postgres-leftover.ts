/**
 * Clears a kept data folder before a start. It may hold the server of a live router, the server of a killed router (whose
 * guard was killed, too), or the lock file of a server that has ended.
 *
 * A server belongs to the router that is its parent, and carries that router's process id in its arguments. While both
 * agree the router lives, and the folder is rejected; when the router has died, the system has given the server another
 * parent. Process ids are reused, quickly after the restart of a container: so only a process whose arguments name this
 * folder is ended.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Clock } from '../clock.js';
import { ConfigError } from '../errors.js';

const endLimitMs = 15_000;

/** Resolves when a server can be started there; throws if another router uses the folder. */
export async function clearLeftover(data: string, log: (line: string) => void, clock: Clock): Promise<void> {
  const lockFile = join(data, 'postmaster.pid');
  const pid = Number((await readFile(lockFile, 'utf8').catch(() => '')).split('\n')[0]);
  if (!(pid > 0)) return;
  const found = await lookAt(pid);
  // Ended, or hidden from this user: PostgreSQL's own check of its lock decides.
  if (found === undefined) return;
  if (!found.command.includes(data)) {
    log(`removing the stale lock of a PostgreSQL server from ${data}: process ${pid} is another program now`);
    await rm(lockFile, { force: true });
    return;
  }
  if (found.command.includes(`cluster_name=smart-router-${found.parent}`)) {
    throw new ConfigError([
      `The embedded PostgreSQL cannot use ${data}: process ${found.parent} uses it. Stop that process, or choose another folder.`,
    ]);
  }
  log(`stopping an orphaned PostgreSQL server (process ${pid}) in ${data} before the start`);
  await end(pid, clock);
}

async function end(pid: number, clock: Clock): Promise<void> {
  process.kill(pid, 'SIGINT');
  const deadline = clock.monotonic() + endLimitMs;
  while ((await lookAt(pid)) !== undefined) {
    if (clock.monotonic() > deadline) {
      throw new ConfigError([`An orphaned PostgreSQL server (process ${pid}) does not stop: kill it.`]);
    }
    await clock.sleep(20);
  }
}

interface Found {
  parent: number;
  /** The arguments, each between two NULs. */
  command: string[];
}

/** Undefined: no such process, a zombie, or hidden from this user. */
async function lookAt(pid: number): Promise<Found | undefined> {
  try {
    if (existsSync('/proc/self/stat')) {
      const [command, stat] = await Promise.all(
        ['cmdline', 'stat'].map((file) => readFile(`/proc/${pid}/${file}`, 'utf8')),
      );
      // The process name before it may hold spaces and brackets.
      const parent = Number((stat ?? '').replace(/^.*\) . /s, '').split(' ')[0]);
      return command ? { parent, command: command.split('\0') } : undefined;
    }
    const { stdout } = await promisify(execFile)('ps', ['-o', 'ppid=,args=', '-ww', '-p', String(pid)]);
    const [, parent, args = ''] = /^\s*(\d+)\s+(.*)$/.exec(stdout) ?? [];
    return parent === undefined ? undefined : { parent: Number(parent), command: args.split(' ') };
  } catch {
    return undefined;
  }
}
