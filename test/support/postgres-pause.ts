/**
 * A whole PostgreSQL that holds still. Each of its processes is alone in its group, so each gets the signal; the first
 * process is stopped first, so that no new one comes while the others are looked up.
 */
import { execFileSync, spawn } from 'node:child_process';

export interface Paused {
  resume(): Promise<void>;
}

export function pauseProcesses(first: number): Paused {
  process.kill(first, 'SIGSTOP');
  const all = [first, ...childrenOf(first)];
  for (const pid of all) signal(pid, 'SIGSTOP');
  // Stopped processes notice nothing, neither the death of their parent nor of this one: a shell at a pipe does.
  const script = 'while read -r line; do :; done; kill -CONT "$@"';
  const guard = spawn('/bin/sh', ['-c', script, 'resume', ...all.map(String)], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  const resumed = new Promise<void>((resolve) => guard.once('close', () => resolve()));
  return {
    async resume() {
      for (const pid of all.toReversed()) signal(pid, 'SIGCONT');
      guard.stdin.end();
      await resumed;
    },
  };
}

function childrenOf(parent: number): number[] {
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' }).trim().split('\n');
  return lines.flatMap((line) => {
    const [pid, ppid] = line.trim().split(/\s+/).map(Number);
    return ppid === parent && pid !== undefined ? [pid] : [];
  });
}

/** A connection and its process may have ended since. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
