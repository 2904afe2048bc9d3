/** A router with two workers, as an operator starts it. */
import { existsSync, readFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { onTestFinished } from 'vitest';
import {
  type RouterEnv,
  type RouterProcess,
  request,
  startRouter,
  until,
  untilServing,
} from './processes.js';

/** Sends a request; the answer as JSON. */
// biome-ignore lint/suspicious/noExplicitAny: the fields depend on the path.
export type Ask = (path: string, body?: unknown) => Promise<any>;

export const podCount = 8;

export const workersEnv: RouterEnv = {
  WORKERS: '2',
  METRICS_PORT: '0',
  POD_NAME: 'box',
  // A busy machine is not a store that does not answer.
  REQUEST_TIMEOUT: '20s',
  REDIS_COMMAND_TIMEOUT: '15s',
  STATIC_PODS: Array.from({ length: podCount }, (_, i) => `gold-${i}=gold`).join(','),
};

/** Resolves when both serve. */
export async function startWorkers(env: RouterEnv): Promise<RouterProcess> {
  const group = await startRouter({ ...workersEnv, ...env });
  await until('all workers listen', () => group.logged('all workers are listening').length > 0);
  await untilServing(group, podCount);
  return group;
}

/** By number, as long as none was replaced. */
export const pidsOf = (group: RouterProcess): number[] =>
  group
    .logged('worker started')
    .sort((a, b) => Number(a.worker) - Number(b.worker))
    .map(({ pid }) => Number(pid));

/** `R`, `S`, `T` (stopped) ...; undefined if it has ended, also if its parent has not read its exit code yet. */
function stateOf(pid: number): string | undefined {
  const path = `/proc/${pid}/stat`;
  const state = existsSync(path) ? /^\d+ \(.*\) (\w)/s.exec(readFileSync(path, 'utf8'))?.[1] : undefined;
  return state === 'Z' || state === 'X' ? undefined : state;
}

export const isAlive = (pid: number): boolean => stateOf(pid) !== undefined;

/** Reads the metrics port; the result returns the value of a series. */
export async function scrape(group: RouterProcess): Promise<(series: string) => number | undefined> {
  const url = String(group.logged('smart-router is listening')[0]?.metrics);
  const lines = (await (await fetch(url)).text()).split('\n');
  return (series) => {
    const line = lines.find((each) => each.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length));
  };
}

/** Runs `work` while the other worker is stopped: worker `number` accepts its connections. */
export async function onlyWorker<T>(group: RouterProcess, number: 1 | 2, work: () => Promise<T>): Promise<T> {
  const other = Number(pidsOf(group)[2 - number]);
  process.kill(other, 'SIGSTOP');
  try {
    await until(`the other of worker ${number} is stopped`, () => stateOf(other) === 'T');
    return await work();
  } finally {
    process.kill(other, 'SIGCONT');
  }
}

/** Opens a connection to worker 1 or 2. */
export async function connectTo(group: RouterProcess, number: 1 | 2): Promise<Ask> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const ask: Ask = async (path, body) => {
    const { text } = await request(agent, body === undefined ? 'GET' : 'POST', group.url + path, body);
    return JSON.parse(text);
  };
  await onlyWorker(group, number, () => ask('/health'));
  return ask;
}
