/**
 * An upgrade of the routers under load, and back: from the previous release to this version, one router at a time. Both
 * versions share the store and lead in turn, while callers allocate, renew and release and agents report.
 */
import { expect, it, onTestFinished } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { openFleet } from '../support/fleet.js';
import { checkInvariants } from '../support/invariants.js';
import { type Answer, isIdle, pause, type RouterProcess } from '../support/processes.js';
import { builtRelease, releaseAvailable } from '../support/release.js';
import { until } from '../support/until.js';
import { followEvents, replay } from './history.js';

const available = releaseAvailable();
const podCount = 16;
const tiers = {
  tiers: {
    gold: { type: 'exclusive', target: 8 },
    basic: { type: 'shared', target: 8, max_concurrent: 3 },
  },
  default_chain: ['gold', 'basic'],
};
const env = {
  TIER_CONFIG: JSON.stringify(tiers),
  REPORT_GRACE: '5s',
  AUDIT_INTERVAL: '500ms',
  // On a busy machine a leader may lose its Lease: the test replaces routers, nothing restarts them.
  LEADER_LOSS: 'follow',
};
const limits = { 'pool:gold': 1, 'pool:basic': 3 };
const refusals = ['no_pods', 'merchant_limit', 'queue_full', 'wait_expired'];

describeOneEngine(
  `an upgrade from the previous release${available === true ? '' : ` [${available}]`}`,
  (engine) => {
    it.skipIf(available !== true)(
      'and back loses no call, and leaves no violation',
      {
        timeout: 300_000,
      },
      async () => {
        const folders = { old: builtRelease(), new: undefined };
        const fleet = await openFleet(engine.url);
        fleet.pods(...Array.from({ length: podCount }, (_, i) => `agent-${i}`));
        const versions = new Map<RouterProcess, string>();
        let started = 0;
        const start = async (version: 'old' | 'new') => {
          started += 1;
          const router = await fleet.start(`r-${started}-${version}`, env, folders[version]);
          versions.set(router, version);
          await until(async () => (await router.get('/ready')).status === 200, 'it is ready');
          return router;
        };
        const routers = await Promise.all([start('old'), start('old'), start('old')]);
        const any = () => routers[Math.floor(Math.random() * routers.length)] as RouterProcess;
        const events = followEvents(engine.url);
        const problems: string[] = [];

        /** As a caller behind a load balancer: another router if this one ends; every request gets an answer. */
        const insist = async (path: string, body: object): Promise<Answer & { tries: number }> => {
          for (let tries = 0; ; tries += 1) {
            const answer = await any().post(`/api/v1${path}`, body);
            const isFinal =
              ![0, 503].includes(answer.status) || refusals.includes(answer.body.code ?? '') || tries === 50;
            if (isFinal) return { ...answer, tries };
            await pause(100);
          }
        };

        let over = false;
        let served = 0;
        const serving = new Map<string, Set<string>>();
        const call = async (sid: string, caller: number) => {
          const merchant = caller % 2 === 0 ? { merchant_id: 'acme' } : {};
          const wait = caller % 3 === 0 ? { wait: '1s' } : {};
          const allocated = await insist('/allocate', { call_sid: sid, ...merchant, ...wait });
          const { status, body } = allocated;
          if (status === 202) return;
          if (status !== 200) {
            if (!refusals.includes(body.code ?? '')) problems.push(`allocate ${sid}: ${allocated.text}`);
            return pause(50);
          }
          const { pod_name: pod = '', fence } = body;
          const calls = serving.get(pod) ?? new Set();
          serving.set(pod, calls.add(sid));
          for (let beats = 0; beats < 3; beats += 1) {
            await pause(50 + Math.random() * 150);
            const renewed = await insist('/renew', { call_sid: sid, fence });
            if (renewed.status !== 200) problems.push(`${sid} lost its pod: ${renewed.text}`);
          }
          const again = await insist('/allocate', { call_sid: sid, ...merchant });
          if (again.body.pod_name !== pod) problems.push(`${sid} had ${pod}, then: ${again.text}`);
          calls.delete(sid);
          const released = await insist('/release', { call_sid: sid, fence });
          // 404: the answer to an earlier try was lost with its router.
          const isEnded = released.status === 200 || (released.status === 404 && released.tries > 0);
          if (!isEnded) problems.push(`release ${sid}: ${released.text}`);
          served += 1;
        };
        const callers = Array.from({ length: 12 }, async (_, caller) => {
          for (let i = 0; !over; i += 1) await call(`call-${caller}-${i}`, caller);
        });
        const agents = Array.from({ length: podCount / 2 }, async (_, i) => {
          const pod = `agent-${2 * i}`;
          while (!over) {
            const calls = [...(serving.get(pod) ?? [])];
            const { text } = await any().post(`/api/v1/pod/${pod}/report`, { calls });
            for (const sid of text.startsWith('{') ? (JSON.parse(text).conflicts ?? []) : [])
              if (serving.get(pod)?.has(sid)) problems.push(`${pod} had to drop ${sid}`);
            await pause(400);
          }
        });
        onTestFinished(async () => {
          over = true;
          await Promise.allSettled([...callers, ...agents]);
        });

        const leaders: (string | undefined)[] = [];
        const settled = async () => {
          const leader = await fleet.leader(routers);
          leaders.push(versions.get(leader));
          const before = served;
          await until(() => served > before + 20 || problems.length > 0, 'calls are served');
          return leader;
        };
        /** The leader first, so that each replacement moves the leadership. */
        const replaceAll = async (
          version: 'old' | 'new',
          afterFirst = async (_router: RouterProcess) => {},
        ) => {
          const left = new Set(routers);
          while (left.size > 0) {
            const leader = await settled();
            const [other] = left;
            const leaving = left.has(leader) ? leader : (other as RouterProcess);
            left.delete(leaving);
            const router = await start(version);
            routers.splice(routers.indexOf(leaving), 1, router);
            expect(await leaving.stop(), leaving.output.slice(-2000)).toBe(0);
            if (left.size === 2) await afterFirst(router);
          }
          await settled();
        };

        await until(async () => (await any().get('/api/v1/status')).body.pools !== undefined, 'it is up');
        await replaceAll('new', async (router) => {
          const hold = { max_wait: '5s', max_waiting: 20 };
          expect((await router.put('/api/v1/tiers', { ...tiers, hold })).status).toBe(200);
          const acme = { tier: 'gold', max_calls: 4, priority: 5, weight: 2, hold };
          expect((await router.put('/api/v1/merchants/acme', acme)).status).toBe(200);
        });
        const kept = JSON.parse((await any().get('/api/v1/tiers')).text);
        expect(kept.hold).toMatchObject({ max_waiting: 20 });
        await replaceAll('old');
        // What this version stored is readable for the old one: its pools and chain, and a merchant with limits.
        for (const router of routers) {
          expect(router.logged(/tier configuration|merchant.*(invalid|ignored|malformed)/i)).toEqual([]);
          expect(JSON.parse((await router.get('/api/v1/tiers')).text).default_chain).toEqual([
            'gold',
            'basic',
          ]);
        }
        const last = await start('new');
        routers.push(last);
        expect(JSON.parse((await last.get('/api/v1/tiers')).text).hold).toEqual(kept.hold);
        await settled();

        over = true;
        await Promise.all([...callers, ...agents]);
        expect(problems).toEqual([]);
        expect(new Set(leaders)).toEqual(new Set(['old', 'new']));
        // No older router runs any more. Calls of acme that one of them ended still count; they leave at the limit.
        for (const router of routers.splice(0, 3)) await router.stop();
        await until(() => isIdle(last), 'no call is left');
        const filled: string[] = [];
        for (
          let answer = await insist('/allocate', { call_sid: 'fill-0', merchant_id: 'acme' });
          answer.status === 200;
        ) {
          filled.push(`fill-${filled.length}`);
          answer = await insist('/allocate', { call_sid: `fill-${filled.length}`, merchant_id: 'acme' });
        }
        expect(filled.length).toBe(4);
        for (const sid of filled) await insist('/release', { call_sid: sid });
        expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
        expect(replay(await events.all(), limits).violations).toEqual([]);
      },
    );
  },
);
