/** One sample: processes from /proc and /metrics, Redis and PostgreSQL from their own statistics. */
import { readdirSync, readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { keyTable } from '../../src/calls/store/key-table.mjs';
import { identifyKey, keysOf } from '../../src/calls/store/keys.js';
import type { Router } from './routers.js';

const prefix = 'voice:';
const keys = keysOf(prefix);
const kinds = new Map<object, string>(Object.entries(keyTable).map(([name, shape]) => [shape, name]));
/** Of Linux, in every configuration. */
const ticksPerSecond = 100;

export interface Sources {
  routers: readonly Router[];
  redis: Redis;
  pool: Pool;
  postgresPid: number;
  /** Where the records process writes its memory. */
  heapFile: string;
  calls: () => { live: number; waiting: number };
}

export class Sampler {
  #cpu: { atMs: number; ticks: Map<number, number> } | undefined;

  constructor(private readonly sources: Sources) {}

  /** A part that cannot be read is missing in the sample. */
  async sample(): Promise<Record<string, number>> {
    const { calls } = this.sources;
    const parts = [
      ...this.sources.routers.map((router) => this.#router(router)),
      ...[this.#records(), this.#redis(), this.#keys(), this.#tables(), this.#cpuShare()],
      Promise.resolve({ 'calls.live': calls().live, 'calls.waiting': calls().waiting }),
    ];
    const found = await Promise.allSettled(parts);
    return Object.assign({}, ...found.map((one) => (one.status === 'fulfilled' ? one.value : {})));
  }

  async #router(router: Router): Promise<Record<string, number>> {
    const { name, child } = router;
    const { text } = await router.send('GET', '/metrics');
    const metric = (of: string) => Number(new RegExp(`^${of} (\\S+)$`, 'm').exec(text)?.[1]);
    const violations = metric('smart_router_invariant_violations');
    return {
      ...ofProcess(name, child.pid),
      [`${name}.heap`]: metric('nodejs_heap_size_used_bytes'),
      [`${name}.lag`]: metric('nodejs_eventloop_lag_p99_seconds') * 1000,
      ...(Number.isNaN(violations) ? {} : { violations }),
    };
  }

  async #records(): Promise<Record<string, number>> {
    const pid = this.#recordsPid();
    if (pid === undefined) return {};
    return {
      ...ofProcess('records', pid),
      'records.heap': Number(readFileSync(this.sources.heapFile, 'utf8')),
    };
  }

  #recordsPid(): number | undefined {
    const [router] = this.sources.routers;
    return childrenOf(router?.child.pid ?? 0).find((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('records-child'),
    );
  }

  async #redis(): Promise<Record<string, number>> {
    const { redis } = this.sources;
    const info = `${await redis.info('memory')}${await redis.info('server')}${await redis.info('latencystats')}`;
    const number = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1]);
    const times = /^latency_percentiles_usec_evalsha:p50=([\d.]+),p99=([\d.]+),p99\.9=([\d.]+)/m.exec(info);
    // The next sample has the times of its own interval.
    await redis.config('RESETSTAT');
    const history = Number((await redis.call('MEMORY', 'USAGE', keys.history)) ?? 0);
    const used = number('used_memory');
    return {
      ...ofProcess('redis', number('process_id')),
      ...{ 'redis.used': used, 'redis.used.rest': used - history },
      ...{ events: await redis.xlen(keys.events), journal: await redis.xlen(keys.journal) },
      history: await redis.xlen(keys.history),
      ...(times
        ? { 'script.p50': Number(times[1]), 'script.p99': Number(times[2]), 'script.p99.9': Number(times[3]) }
        : {}),
    };
  }

  async #keys(): Promise<Record<string, number>> {
    const { redis } = this.sources;
    const counts: Record<string, number> = { keys: await redis.dbsize() };
    // Zero, so that a kind that appears later has a beginning.
    for (const kind of kinds.values()) counts[`keys.${kind}`] = 0;
    for (let cursor = '0'; ; ) {
      const [next, found] = await redis.scan(cursor, 'COUNT', 1000);
      for (const key of found) {
        const shape = identifyKey(key.startsWith(prefix) ? key.slice(prefix.length) : key)?.shape;
        const kind = `keys.${(shape && kinds.get(shape)) ?? 'unknown'}`;
        counts[kind] = (counts[kind] ?? 0) + 1;
      }
      cursor = next;
      if (cursor === '0') return counts;
    }
  }

  async #tables(): Promise<Record<string, number>> {
    const { rows } = await this.sources.pool.query<{
      name: string;
      bytes: string;
      dead: string;
      live: string;
    }>(`
      SELECT relname AS name, pg_total_relation_size(relid) AS bytes, n_dead_tup AS dead, n_live_tup AS live
      FROM pg_stat_user_tables WHERE relname IN ('claims', 'jobs')`);
    return Object.assign(
      {},
      ...rows.map(({ name, bytes, dead, live }) => ({
        ...{
          [`${name}.bytes`]: Number(bytes),
          [`${name}.dead`]: Number(dead),
          [`${name}.live`]: Number(live),
        },
      })),
    );
  }

  /** Of all processes and this one, since the last sample. */
  async #cpuShare(): Promise<Record<string, number>> {
    const { routers, postgresPid, redis } = this.sources;
    const redisPid = Number(/process_id:(\d+)/.exec(await redis.info('server'))?.[1]);
    const roots = [process.pid, ...routers.map(({ child }) => child.pid), redisPid, postgresPid];
    const pids = new Set(roots.flatMap((pid) => [pid, ...(pid === process.pid ? [] : childrenOf(pid))]));
    const ticks = new Map([...pids].map((pid) => [pid, ticksOf(pid)]));
    const before = this.#cpu;
    this.#cpu = { atMs: Date.now(), ticks };
    if (!before) return {};
    let used = 0;
    // A process that has started since has its whole time in this interval.
    for (const [pid, now] of ticks) used += Math.max(0, now - (before.ticks.get(pid) ?? 0));
    return { cpu: (used / ticksPerSecond / ((this.#cpu.atMs - before.atMs) / 1000)) * 100 };
  }
}

function ofProcess(name: string, pid: number): Record<string, number> {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return {
    [`${name}.rss`]: Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) * 1024,
    [`${name}.fds`]: readdirSync(`/proc/${pid}/fd`).length,
  };
}

function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return text === '' ? [] : text.split(' ').map(Number);
}

/** Time of the process in user and kernel mode; its name, in parentheses, may contain spaces. */
function ticksOf(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    return Number(fields[11]) + Number(fields[12]);
  } catch {
    return 0;
  }
}
