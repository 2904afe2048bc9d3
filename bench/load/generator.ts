/** The benchmark's side of the generator process. */
import { type ChildProcess, fork } from 'node:child_process';
import { endOf } from '../support/server-process.js';
import type { FromGenerator, LoadRun, Phase, PhaseResult } from './messages.js';

/** Short, so that few pods are needed. Each allocate has a release, which is also load of the router. */
const holdMs = 1000;

export class Generator {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(): Promise<Generator> {
    const child = fork(new URL('./generator-process.js', import.meta.url), {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const generator = new Generator(child);
    await generator.#until((message) => ('ready' in message ? true : undefined));
    return generator;
  }

  async run(
    url: string,
    phases: readonly Phase[],
    onPhaseEnd: () => Promise<unknown> = async () => {},
  ): Promise<PhaseResult[]> {
    const asked: Promise<unknown>[] = [];
    const ended = this.#until((message) => {
      if ('phaseEnded' in message) asked.push(onPhaseEnd());
      return 'results' in message ? message : undefined;
    });
    this.#child.send({ url, phases, holdMs } satisfies LoadRun);
    const { results, releases } = await ended;
    await Promise.all(asked);
    if (releases.failed > 0) throw new Error(`${releases.failed} calls had ended before their release`);
    // NaN cannot be sent between processes.
    return results.map((result) => ({
      ...result,
      p50Ms: result.p50Ms ?? Number.NaN,
      p99Ms: result.p99Ms ?? Number.NaN,
      p999Ms: result.p999Ms ?? Number.NaN,
    }));
  }

  stop(): Promise<void> {
    return endOf(this.#child);
  }

  #until<T>(find: (message: FromGenerator) => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const child = this.#child;
      const onExit = (code: number | null) => reject(new Error(`the generator ended with ${code}`));
      const onMessage = (message: FromGenerator) => {
        const found = find(message);
        if (found === undefined) return;
        child.off('exit', onExit);
        child.off('message', onMessage);
        resolve(found);
      };
      child.once('exit', onExit);
      child.on('message', onMessage);
    });
  }
}
