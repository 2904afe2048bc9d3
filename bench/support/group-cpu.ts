/** CPU time of a process and its children, from /proc: NaN where that does not exist. */
import { readdirSync, readFileSync } from 'node:fs';

/** Linux counts in hundredths of a second. */
const tickMs = 10;

export function groupCpuMs(parentPid: number): number {
  let ticks = 0;
  try {
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      const fields = statOf(pid);
      if (!fields) continue;
      const [parent, own, ended] = [Number(fields[1]), sum(fields, 11), sum(fields, 13)];
      if (Number(pid) === parentPid) ticks += own + ended;
      else if (parent === parentPid) ticks += own;
    }
  } catch {
    return Number.NaN;
  }
  return ticks * tickMs;
}

/** The fields after the name, which may contain spaces. Undefined: the process has ended. */
function statOf(pid: string): string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

const sum = (fields: readonly string[], at: number) => Number(fields[at]) + Number(fields[at + 1]);
