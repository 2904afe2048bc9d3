/**
 * Memory of a router that leads 5,000 pods while each of them has a live call and reports it every 10 s. After the first
 * list every pod changes its readiness several times. Between those changes watches end, break and expire, so that the
 * leader also lists at once, ten times as often as in production. All pods report to the leader, over 1,000 connections.
 */
import type { Redis } from 'ioredis';
import { HttpConnection } from '../support/http-connection.js';
import { forEach, median } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import type { ServerProcess } from '../support/server-process.js';
import { nameOf, pause, pods, type Stage, stage, startLeader } from './stage.js';

const connections = 1000;
const reportIntervalMs = 10_000;
const changesPerSecond = 400;
const sids = Array.from({ length: pods }, (_, i) => `CA${String(i).padStart(32, '0')}`);

export async function leaderMemory(bench: Bench): Promise<Figure[]> {
  const { admin, quick } = bench;
  const scene = await stage(bench, { bookmarkIntervalMs: 1000 });
  const idle = await startLeader(scene.env);
  const empty = (await idle.spent()).rssBytes;
  await idle.stop();
  await admin.flushall();

  scene.create();
  const leader = await startLeader({ ...scene.env, AUDIT_INTERVAL: '10s', LOG_LEVEL: 'info' });
  while ((await admin.scard('voice:pool:gold:available')) < pods) await pause(20);
  const synced = await leader.spent();
  const stopReports = await startCalls(leader, admin);
  await changeAll(scene, quick ? 2 : 6);
  const changed = await leader.spent();
  const samples: number[] = [];
  for (let second = 0; second < (quick ? 15 : 60); second++) {
    await pause(1000);
    samples.push((await leader.spent()).rssBytes);
  }
  const end = await leader.spent();
  const alive = await admin.zcard('voice:pool:gold:calls');
  await stopReports();
  await leader.stop();
  await scene.end();
  if (alive !== pods) throw new Error(`${alive} calls are alive, not ${pods}`);
  const megabytes = (bytes: number) => number(bytes / 1e6);
  return [
    {
      id: 'memory.rss',
      label: 'memory of the leading router with 5,000 pods and 5,000 live calls',
      value: median(samples) / 1e6,
      unit: 'MB',
      target: { below: 180 },
      note: `without any pod ${megabytes(empty)} MB, after the first list ${megabytes(synced.rssBytes)} MB, after the changes ${megabytes(changed.rssBytes)} MB; ${number(end.cpuMs / 1000)} s of CPU, ${number(synced.cpuMs / 1000)} s of it until all pods were available`,
    },
    {
      id: 'memory.peak',
      label: 'the same at its peak',
      value: end.peakRssBytes / 1e6,
      unit: 'MB',
      target: { below: 180 },
      note: `${megabytes(synced.peakRssBytes)} MB until all pods were available`,
    },
  ];
}

/** Every pod gets a call, then reports it again and again. The returned function ends the reports. */
async function startCalls({ url }: ServerProcess, admin: Redis): Promise<() => Promise<void>> {
  const { hostname, port } = new URL(url);
  const open = () => new HttpConnection(hostname, Number(port));
  const callers = Array.from({ length: 64 }, open);
  await forEach(sids, callers.length, async (sid) => {
    const caller = callers.pop() as HttpConnection;
    const body = JSON.stringify({ call_sid: sid, merchant_id: 'acme' });
    const status = await caller.post('/api/v1/allocate', body);
    if (status !== '200') throw new Error(`allocate answered ${status}`);
    callers.push(caller);
  });
  for (const caller of callers) caller.close();
  const callOf = new Map<string, string>();
  for (let i = 0; i < pods; i++) {
    const [call = ''] = await admin.zrange(`voice:pod:calls:${nameOf(i)}`, '0', '0');
    callOf.set(nameOf(i), call);
  }
  let isOver = false;
  const perClient = pods / connections;
  const reports = Array.from({ length: connections }, async (_, i) => {
    let client = open();
    await pause((i * reportIntervalMs) / pods);
    for (let turn = 0; !isOver; turn++) {
      const pod = nameOf(i * perClient + (turn % perClient));
      const body = JSON.stringify({ calls: [callOf.get(pod)], interval_ms: reportIntervalMs });
      // A busy router may reject a report, or close the connection; the next report repeats it.
      await client.post(`/api/v1/pod/${pod}/report`, body).catch(() => {
        client = open();
      });
      await pause(reportIntervalMs / perClient);
    }
    client.close();
  });
  return async () => {
    isOver = true;
    await Promise.all(reports);
  };
}

async function changeAll({ cluster }: Stage, times: number): Promise<void> {
  const startMs = performance.now();
  for (let i = 0; i < times * pods; i++) {
    const waitMs = startMs + (i * 1000) / changesPerSecond - performance.now();
    if (waitMs > 0) await pause(waitMs);
    cluster.pods.setReady(nameOf(i % pods), Math.floor(i / pods) % 2 === 1);
    if (i % pods === 1000) cluster.faults.endWatches();
    if (i % pods === 2000) cluster.faults.cutWatches();
    if (i % pods === 3000) cluster.faults.expireHistory({ tellWatches: true });
  }
}
