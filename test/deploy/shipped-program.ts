/** A running shipped script: its output so far, and its exit code. */
import { type ChildProcess, spawn } from 'node:child_process';

export interface ShippedProgram {
  readonly ended: Promise<number | null>;
  readonly running: boolean;
  readonly output: string;
  /** Kills it, and waits until it has ended. */
  end(): Promise<void>;
}

export function startShipped(program: string, args: string[], env: NodeJS.ProcessEnv): ShippedProgram {
  const child: ChildProcess = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => {
      output += chunk;
    });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  return {
    ended,
    get running() {
      return child.exitCode === null;
    },
    get output() {
      return output;
    },
    async end() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}
