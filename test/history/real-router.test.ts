/**
 * The independent checker and two real routers: callers that wait, retry, hang up and release late, agents that report,
 * pods that drain. Their history is clean; the same history with one more allocation on a held pod is not.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { seeded } from '../processes/history.js';
import { describeOneEngine } from '../support/engines.js';
import { type Answer, startTestRouter } from '../support/router.js';
import { isDeep } from '../support/sets.js';
import { Facts } from './facts.mjs';
import { judge } from './judge.mjs';
import { recordHistory } from './recording.js';

const pods = ['gold-0', 'gold-1', 'gold-2', 'gold-3', 'basic-0', 'basic-1'];
const times = { lease_ms: 1500, drain_ms: 600, report_grace_ms: 300 };
const env = {
  STATIC_PODS: pods.map((pod) => `${pod}=${pod.split('-')[0]}`).join(','),
  TIER_CONFIG: JSON.stringify({
    tiers: {
      gold: { type: 'exclusive', target: 4 },
      basic: { type: 'shared', target: 2, max_concurrent: 2 },
    },
    default_chain: ['gold', 'basic'],
    hold: { max_wait: '5s', max_waiting: 12 },
  }),
  LEASE_TTL: `${times.lease_ms}ms`,
  DRAINING_TTL: `${times.drain_ms}ms`,
  REPORT_GRACE: `${times.report_grace_ms}ms`,
  HOLD_POLL_INTERVAL: '1s',
  HOLD_CLAIM_TTL: '4s',
  LOG_LEVEL: 'error',
};
const merchants = { acme: { max_calls: 2 }, zenith: { priority: 1 } };

/** Callers, agents and drains until `wanted` calls had a pod, and what they recorded. */
async function run(engineUrl: string, wanted: number, random: () => number) {
  const history = recordHistory({
    pools: { 'pool:gold': { kind: 'exclusive' }, 'pool:basic': { kind: 'shared', max: 2 } },
    merchants,
    ...times,
  });
  const routers = await Promise.all(
    ['first', 'second'].map((POD_NAME) => startTestRouter(engineUrl, { ...env, POD_NAME })),
  );
  const [router] = routers;
  for (const [merchant, limits] of Object.entries(merchants))
    await router?.put(`/merchants/${merchant}`, { ...limits, hold: { max_wait: '5s', max_waiting: 12 } });
  // Each router reads the settings on its own.
  await Promise.all(routers.map(({ context }) => context.settings.refresh()));

  const seen = { given: 0, lost: 0, statuses: new Set<number>() };
  const isOver = () =>
    seen.given >= wanted && seen.lost > 0 && [200, 202, 404].every((status) => seen.statuses.has(status));
  const below = (count: number) => Math.floor(random() * count);
  const chance = (share: number) => random() < share;
  const serving = new Map(pods.map((pod) => [pod, new Set<string>()]));

  /** Any router; `lost`: the sender hangs up before the reply. */
  async function post(path: string, body: object, lost = false): Promise<Answer | undefined> {
    const hangUp = new AbortController();
    const target = routers[below(routers.length)];
    if (!target) return undefined;
    const answer = history.writer.send(path, body, () =>
      target.ask(path, {
        ...{ method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) },
        signal: hangUp.signal,
      }),
    );
    if (lost) setTimeout(() => hangUp.abort(), below(8));
    const received = await answer.catch(() => undefined);
    if (received) seen.statuses.add(received.status);
    else seen.lost += 1;
    if (received?.status === 200 && received.body.was_existing === false) seen.given += 1;
    return received;
  }

  async function call(call_sid: string, merchant_id: string | undefined): Promise<number | undefined> {
    const wait = chance(0.6) ? { wait: `${below(400)}ms` } : {};
    const request = { call_sid, ...wait, ...(merchant_id ? { merchant_id } : {}) };
    if (chance(0.1)) void post('/allocate', request);
    let answer = await post('/allocate', request, chance(0.1));
    for (let i = 0; i < 8 && (!answer || answer.status === 202) && !isOver(); i++)
      answer = await post('/allocate', request, chance(0.05));
    if (answer?.status !== 200) {
      if (chance(0.5)) await post('/release', { call_sid });
      return undefined;
    }
    const { pod_name: pod, fence } = answer.body;
    const isConnected = chance(0.9);
    if (isConnected) serving.get(pod)?.add(call_sid);
    for (let i = below(4); i > 0 && !isOver(); i--) {
      await pause(below(60));
      if (chance(0.5)) await post('/renew', { call_sid, fence }, chance(0.1));
      else if (chance(0.3)) await post('/allocate', request);
    }
    serving.get(pod)?.delete(call_sid);
    // Its lease ends, or its pod reports without it.
    if (chance(0.1)) return fence;
    const released = post('/release', chance(0.7) ? { call_sid, fence } : { call_sid }, chance(0.1));
    if (chance(0.2)) await post('/release', { call_sid, fence });
    await released;
    return fence;
  }

  async function caller(name: string): Promise<void> {
    const merchant = [undefined, undefined, 'acme', 'zenith'][below(4)];
    for (let i = 0; !isOver(); i++) {
      const sid = `${name}-${i}`;
      const fence = await call(sid, merchant);
      // The same SID again, and a late release of the call before.
      if (fence !== undefined && chance(0.3)) {
        const again = call(sid, merchant);
        await pause(below(40));
        await post('/release', { call_sid: sid, fence });
        await again;
      }
    }
  }

  async function agent(pod: string): Promise<void> {
    let clock: { at: number; readMs: number } | undefined;
    for (; !isOver(); await pause(50 + below(100))) {
      const as_of = clock ? Math.floor(clock.at + performance.now() - clock.readMs) : undefined;
      const body = { calls: [...(serving.get(pod) ?? [])], ...(as_of && chance(0.5) ? { as_of } : {}) };
      const answer = await post(`/pod/${pod}/report`, body, chance(0.1));
      if (answer?.status !== 200) continue;
      clock = { at: answer.body.at, readMs: performance.now() };
      for (const sid of answer.body.conflicts) serving.get(pod)?.delete(sid);
    }
  }

  async function operator(): Promise<void> {
    for (; !isOver(); await pause(below(150))) {
      const pod_name = pods[below(pods.length)];
      await post('/drain', { pod_name }, chance(0.1));
      await pause(below(200));
      if (chance(0.7)) await post('/undrain', { pod_name }, chance(0.1));
    }
  }

  await Promise.all([
    ...Array.from({ length: 16 }, (_, i) => caller(`CA${i}`)),
    ...pods.map(agent),
    operator(),
  ]);
  const verdict = await history.verdict();
  for (const one of routers) await one.stop();
  return { verdict, path: history.writer.path };
}

// biome-ignore lint/suspicious/noExplicitAny: lines of every type.
type Line = Record<string, any>;

/** For calls of exclusive pods: an allocation of the pod to another call, between two replies that prove the first one. */
function stolen(lines: Line[]): Line[] {
  const proofs = new Map<string, Line>();
  return lines.flatMap((line) => {
    const { type, op, status, sid, answer, at } = line;
    if (type !== 'request' || status !== 200) return [];
    if (op === 'allocate' && answer.source_pool === 'pool:gold' && answer.was_existing === false)
      proofs.set(`${sid} ${answer.fence}`, line);
    const first = op === 'renew' ? proofs.get(`${sid} ${line.fence}`) : undefined;
    // The other call begins and is answered in between.
    if (!first || at - first.done < 2) return [];
    const fence = first.answer.fence + 0.5;
    return [
      {
        ...first,
        ...{ sid: 'thief', at: first.done + 0.5, done: first.done + 1, merchant: undefined },
        answer: { ...first.answer, fence, waited_ms: undefined },
      },
    ];
  });
}

function violationsOf(lines: Line[]) {
  const facts = new Facts();
  for (const line of lines) facts.add(line);
  facts.conclude();
  return judge(facts).violations;
}

describeOneEngine('the checker on two real routers', (engine) => {
  it('finds nothing in their history, and every pod that is given twice in it', {
    timeout: 300_000,
  }, async () => {
    const seed = Math.floor(Math.random() * 2 ** 32);
    const { verdict, path } = await run(engine.url, isDeep ? 600 : 100, seeded(seed));
    expect(verdict.violations, `seed ${seed}`).toEqual([]);
    expect(verdict.warnings).toEqual([]);
    const lines: Line[] = readFileSync(path, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const thefts = stolen(lines).slice(0, 10);
    expect(thefts.length).toBeGreaterThan(0);
    for (const theft of thefts)
      expect(violationsOf([...lines, theft])).toContainEqual(
        expect.objectContaining({ sid: 'thief', pod: theft.answer.pod_name, overlap_ms: expect.any(Number) }),
      );
  });
});
