/**
 * One router process leads a simulated cluster of 5,000 pods. Simulator and observer run in this process, the
 * store in another. Measured is the path of the router: API server, watch, store.
 *
 * Limits, in the same run: the bare list (the same client, the same pages, nothing done with them) for the sync, and
 * a bare watch (the same client, in this process) for a change. Changes continue while the periodic sync runs, ten times
 * as often as in production. Pods have the size of production, about 13 KB each.
 */
import { pino } from 'pino';
import { systemClock } from '../../src/clock.js';
import { connectKubernetes } from '../../src/cluster/kubernetes/api.js';
import { kubernetesSource } from '../../src/cluster/kubernetes/source.js';
import type { Cluster } from '../../test/support/cluster.js';
import { median, percentile } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { adminClient } from '../support/store.js';
import { nameOf, pause, pods, stage, startLeader } from './stage.js';

const changesPerSecond = 50;
const never = new AbortController().signal;

export async function manyPods(bench: Bench): Promise<Figure[]> {
  const { engine, admin, quick } = bench;
  const { cluster, kubeconfig, env, create, end } = await stage(bench);
  create();
  const listMs = await bareList(kubeconfig);
  const startMs = performance.now();
  const leader = await startLeader(env);
  const upMs = performance.now();
  while ((await admin.scard('voice:pool:gold:available')) < pods) await pause(5);
  const syncMs = performance.now() - startMs;
  const sinceUpMs = performance.now() - upMs;

  const ways = await changes(cluster, engine.url, kubeconfig, quick ? 10 : 40);
  await leader.stop();
  await end();
  return [
    {
      id: 'sync.seconds',
      label: '5,000 pods: from the start of a router to all available',
      value: syncMs / 1000,
      unit: 's',
      target: { below: 10 },
      note: `${number(sinceUpMs / 1000)} s of it after it listened; reading the bare list takes ${number(listMs / 1000)} s`,
    },
    {
      id: 'sync.overList',
      label: 'the same against reading the bare list',
      value: syncMs / listMs,
      unit: 'times',
    },
    {
      id: 'watch.p99',
      label: 'a change reaches the pool: p99',
      value: percentile(ways.pool, 99),
      unit: 'ms',
      target: { below: 200 },
      note: `${ways.pool.length} changes at ${changesPerSecond}/s; p50 ${number(median(ways.pool))} ms, worst ${number(Math.max(...ways.pool))} ms`,
    },
    {
      id: 'watch.overBare',
      label: 'p50 of that change against a bare watch',
      value: median(ways.pool) / median(ways.bare),
      unit: 'times',
      note: `bare: p50 ${number(median(ways.bare))} ms, p99 ${number(percentile(ways.bare, 99))} ms`,
    },
  ];
}

async function bareList(kubeconfig: string): Promise<number> {
  const api = await connectKubernetes({ kubeconfig }, systemClock);
  const source = sourceOf(api);
  const times: number[] = [];
  for (let i = 0; i < 5; i++) {
    const startMs = performance.now();
    const { pods: found } = await source.list(never);
    if (found.length !== pods) throw new Error(`the list has ${found.length} pods`);
    times.push(performance.now() - startMs);
  }
  api.close();
  return median(times);
}

function sourceOf(api: Awaited<ReturnType<typeof connectKubernetes>>) {
  const log = pino({ level: 'silent' });
  const where = { namespace: 'default', labelSelector: 'app=voice-agent' };
  return kubernetesSource({ api, ...where, silenceMs: 150_000, clock: systemClock, log });
}

/** Pods change their readiness, one at a time, at an even rate, each with a pause between two changes. */
async function changes(cluster: Cluster, redisUrl: string, kubeconfig: string, seconds: number) {
  const sentMs = new Map<string, number>();
  const bareSentMs = new Map<string, number>();
  const pool: number[] = [];
  const bare: number[] = [];
  const over = new AbortController();

  const redis = adminClient(redisUrl);
  const following = (async () => {
    let last = '$';
    while (!over.signal.aborted) {
      const answer = await redis.xread('COUNT', 1000, 'BLOCK', 200, 'STREAMS', 'voice:events', last);
      const nowMs = performance.now();
      for (const [, entries] of answer ?? []) {
        for (const [id, fields] of entries) {
          last = id;
          const pod = fields[fields.indexOf('pod') + 1] ?? '';
          const sent = sentMs.get(pod);
          if (sent === undefined) continue;
          sentMs.delete(pod);
          pool.push(nowMs - sent);
        }
      }
    }
  })();
  const api = await connectKubernetes({ kubeconfig }, systemClock);
  const watching = (async () => {
    const watch = sourceOf(api).watch?.(String(cluster.resourceVersion), over.signal);
    try {
      for await (const { pod } of watch ?? []) {
        const sent = pod && bareSentMs.get(pod.name);
        if (pod === undefined || sent === undefined) continue;
        bareSentMs.delete(pod.name);
        bare.push(performance.now() - sent);
      }
    } catch (error) {
      if (!over.signal.aborted) throw error;
    }
  })();

  await pause(500);
  const isReady = new Array<boolean>(pods).fill(true);
  const startMs = performance.now();
  for (let i = 0; i < seconds * changesPerSecond; i++) {
    const dueMs = startMs + (i * 1000) / changesPerSecond;
    const waitMs = dueMs - performance.now();
    if (waitMs > 0) await pause(waitMs);
    // A pod changes again after half a minute at the earliest.
    const index = (i * 7) % 1500;
    const name = nameOf(index);
    isReady[index] = !isReady[index];
    const nowMs = performance.now();
    sentMs.set(name, nowMs);
    bareSentMs.set(name, nowMs);
    cluster.pods.setReady(name, isReady[index] ?? true);
  }
  for (const deadlineMs = performance.now() + 10_000; sentMs.size > 0 && performance.now() < deadlineMs; )
    await pause(20);
  if (sentMs.size > 0) throw new Error(`${sentMs.size} changes never reached the pool`);
  over.abort();
  await Promise.all([following, watching]);
  redis.disconnect();
  api.close();
  return { pool, bare };
}
