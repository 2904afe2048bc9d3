/**
 * A process of the fleet. It writes its log to the folder of the run and never outlives this one: the kernel kills it if
 * this process is killed. It has its own process group, so that Ctrl-C reaches only this process, which then cleans up.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findOnPath } from '../support/engines.js';

/** The root of the repository: this code may be compiled into another folder. */
export const root = rootOf(dirname(fileURLToPath(import.meta.url)));

function rootOf(folder: string): string {
  return existsSync(join(folder, 'bin', 'smart-router.js')) ? folder : rootOf(dirname(folder));
}

const living = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of living) child.kill('SIGKILL');
});

export interface ChildOptions {
  command: readonly string[];
  env?: Readonly<Record<string, string>>;
  logFile: string;
  /** Told when it has ended, unless it was we who ended it. */
  onEnd?: (why: string) => void;
}

export class Child {
  readonly #process: ChildProcess;
  readonly #ended: Promise<void>;
  #isOurs = false;

  constructor({ command, env = {}, logFile, onEnd }: ChildOptions) {
    const guard = process.platform === 'linux' ? findOnPath('setpriv') : undefined;
    const [file = '', ...args] =
      guard === undefined ? command : [guard, '--pdeathsig', 'KILL', '--', ...command];
    const log = openSync(logFile, 'a');
    this.#process = spawn(file, args, {
      cwd: root,
      // Nothing of the surroundings: a REDIS_URL of the developer's would be used otherwise.
      env: { PATH: process.env.PATH, ...env },
      stdio: ['ignore', log, log],
      detached: true,
    });
    closeSync(log);
    living.add(this.#process);
    this.#ended = new Promise((resolve) => {
      const over = (why: string) => {
        living.delete(this.#process);
        resolve();
        if (!this.#isOurs) onEnd?.(why);
      };
      this.#process.once('error', (error) => over(error.message));
      this.#process.once('exit', (code, signal) => over(`ended with ${code ?? signal}`));
    });
  }

  get isRunning(): boolean {
    return living.has(this.#process);
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  pause(): void {
    this.#process.kill('SIGSTOP');
  }

  resume(): void {
    this.#process.kill('SIGCONT');
  }

  /** Resolves when it has ended. A paused process handles SIGTERM only when it resumes. */
  async end(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<void> {
    this.#isOurs = true;
    if (!this.isRunning) return;
    this.#process.kill(signal);
    if (signal === 'SIGTERM') this.resume();
    await this.#ended;
  }
}

export function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
