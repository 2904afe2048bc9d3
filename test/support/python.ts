/** Python programs of the tests, with the client of clients/python on their path. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { findOnPath } from './engines.js';

export const pythonClient = fileURLToPath(new URL('../../clients/python', import.meta.url));

/** Why tests of the Python client cannot run here; undefined if they can. */
export function pythonMissing(): string | undefined {
  const python = findOnPath('python3');
  if (python === undefined) return 'python3 is not on PATH';
  try {
    execFileSync(python, ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'python3 is older than 3.9';
  }
}

export interface PythonProcess {
  readonly child: ChildProcess;
  /** Everything it wrote to stderr. */
  readonly log: string;
  /** Resolves to the exit code, or to the signal that ended it. */
  readonly exited: Promise<number | NodeJS.Signals>;
  /** Calls the listener with every line of stdout. */
  onLine(listener: (line: string) => void): void;
  send(line: string): void;
  kill(signal: NodeJS.Signals): void;
}

const children = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
});

/** The caller ends it. */
export function startPython(args: string[], env: Record<string, string> = {}): PythonProcess {
  const child = spawn('python3', ['-B', '-u', ...args], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, PYTHONPATH: pythonClient, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  children.add(child);
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    log += chunk;
  });
  child.stdin.on('error', () => {});
  const exited = new Promise<number | NodeJS.Signals>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      children.delete(child);
      resolve(code ?? signal ?? 'SIGKILL');
    });
  });
  return {
    child,
    get log() {
      return log;
    },
    exited,
    onLine(listener) {
      let rest = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) listener(line);
      });
    },
    send: (line) => void child.stdin.write(`${line}\n`),
    kill: (signal) => void child.kill(signal),
  };
}
