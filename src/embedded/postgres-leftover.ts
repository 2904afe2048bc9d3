/**
 * What lies in a kept data folder when somebody starts there: nothing, the server of a router that lives, the server
 * of one that was killed (and its guard with it), or merely the lock file of a server that is gone.
 *
 * A server belongs to the router that is its parent, and carries that router's process number in its arguments. As
 * long as both agree its router lives, and the folder is refused; when the router has died, the system has given the
 * server another parent. Process numbers are used again, after a restart of a container even quickly: so nothing is
 * ended whose arguments do not name this folder.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Clock } from '../clock.js';
import { ConfigError } from '../errors.js';

const endLimitMs = 15_000;

/** Afterwards a server can be started there, or the folder was refused. */
export async function clearLeftover(data: string, log: (line: string) => void, clock: Clock): Promise<void> {
  const lockFile = join(data, 'postmaster.pid');
  const pid = Number((await readFile(lockFile, 'utf8').catch(() => '')).split('\n')[0]);
  if (!(pid > 0)) return;
  const found = await lookAt(pid);
  // Gone: PostgreSQL sees that itself. Hidden from us: it decides.
  if (found === undefined) return;
  if (!found.command.includes(data)) {
    log(
      `The lock of a PostgreSQL that is gone (process ${pid}, now another program) is removed from ${data}.`,
    );
    await rm(lockFile, { force: true });
    return;
  }
  if (found.command.includes(`cluster_name=smart-router-${found.parent}`)) {
    throw new ConfigError([
      `The embedded PostgreSQL cannot use ${data}: process ${found.parent} does. Stop that one, or choose another folder.`,
    ]);
  }
  log(`A PostgreSQL (process ${pid}) outlived its router in ${data}: it is ended, and started again.`);
  await end(pid, clock);
}

async function end(pid: number, clock: Clock): Promise<void> {
  process.kill(pid, 'SIGINT');
  const deadline = clock.monotonic() + endLimitMs;
  while ((await lookAt(pid)) !== undefined) {
    if (clock.monotonic() > deadline) {
      throw new ConfigError([
        `A PostgreSQL (process ${pid}) outlived its router and does not end: end it by hand.`,
      ]);
    }
    await clock.sleep(20);
  }
}

interface Found {
  parent: number;
  /** The arguments, each between two NULs. */
  command: string[];
}

/** Undefined: no such process, only its remains, or not for our eyes. */
async function lookAt(pid: number): Promise<Found | undefined> {
  try {
    if (existsSync('/proc/self/stat')) {
      const [command, stat] = await Promise.all(
        ['cmdline', 'stat'].map((file) => readFile(`/proc/${pid}/${file}`, 'utf8')),
      );
      // The name before it may hold anything, spaces and brackets too.
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
