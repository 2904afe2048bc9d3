/** The built program (`scripts/bench.mjs` builds it first), as a user starts it. Ends with this process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

export interface Program {
  pid: number;
  /** Waits for a matching line, from now on, and returns its groups. */
  line(pattern: RegExp): Promise<{ groups: string[] }>;
  type(word: string): void;
  stop(): Promise<void>;
}

/** `line` of a program that has ended would wait without end. */
const saysWithinMs = 120_000;
const stopsWithinMs = 20_000;

export function start(args: readonly string[], env: NodeJS.ProcessEnv): Program {
  const { PATH, HOME } = process.env;
  const child: ChildProcess = spawn(process.execPath, ['bin/smart-router.js', ...args], {
    env: { PATH, HOME, ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`smart-router ${args[0]} could not be started`);
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const listeners = new Set<(line: string) => void>();
  if (child.stdout)
    createInterface({ input: child.stdout }).on('line', (line) => {
      for (const listener of [...listeners]) listener(line);
    });
  return {
    pid,
    line: (pattern) =>
      new Promise((resolve, reject) => {
        const late = AbortSignal.timeout(saysWithinMs);
        late.onabort = () => reject(new Error(`smart-router ${args[0]} did not say ${pattern}`));
        void ended.then(() => reject(new Error(`smart-router ${args[0]} ended before it said ${pattern}`)));
        const listener = (line: string) => {
          const match = pattern.exec(line);
          if (!match) return;
          listeners.delete(listener);
          resolve({ groups: match.slice(1) });
        };
        listeners.add(listener);
      }),
    type: (word) => void child.stdin?.write(`${word}\n`),
    async stop() {
      child.kill('SIGTERM');
      const late = AbortSignal.timeout(stopsWithinMs);
      late.onabort = kill;
      await ended;
      process.off('exit', kill);
    },
  };
}
