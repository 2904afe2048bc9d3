/** Rounds of failovers under load: per setting one fleet, and in each round one fault, healed before the next one. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import { root, wait } from '../chaos/child.js';
import { HistoryWriter } from '../history/writer.js';
import { quickestRoot } from '../support/postgres.js';
import { until } from '../support/until.js';
import { Capacity } from './capacity.js';
import { RedisGroup, type RedisNode } from './redis-group.js';
import { Routers } from './routers.js';
import {
  environment,
  type FailoverOptions,
  type FaultName,
  podNames,
  pool,
  type Round,
  type Setting,
  times,
} from './settings.js';
import { Traffic } from './traffic.js';

export interface Outcome {
  rounds: Round[];
  /** What the independent checker says about the history of each setting. */
  verdicts: Record<string, Verdict>;
  /** Logs and one history file per setting. */
  folder: string;
}

export interface Verdict {
  requests: number;
  double_allocations: number;
  violations: { promise: number; text: string }[];
}

/** Capacity counts as full after this long without an exception. */
const steadyMs = 1500;
const historyFile = 'history.ndjson';

export async function failover(options: FailoverOptions): Promise<Outcome> {
  const stamp = new Date().toISOString().replace(/[:.]/g, '-');
  const folder = join(root, '.cache', 'failover', `${stamp}-seed-${options.seed}`);
  const rounds: Round[] = [];
  const verdicts: Record<string, Verdict> = {};
  for (const setting of options.settings) {
    if (options.signal?.aborted) break;
    await runSetting(setting, options, join(folder, setting), rounds);
    verdicts[setting] = judge(join(folder, setting, historyFile));
  }
  return { rounds, verdicts, folder };
}

function judge(file: string): Verdict {
  const args = [join(root, 'scripts', 'check-history.mjs'), '--json', file];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', maxBuffer: 1 << 28 });
  if (stdout === '') throw new Error(`the checker did not judge ${file}: ${stderr}`);
  return JSON.parse(stdout) as Verdict;
}

async function runSetting(
  setting: Setting,
  options: FailoverOptions,
  folder: string,
  rounds: Round[],
): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const data = mkdtempSync(join(quickestRoot(undefined), 'smart-router-failover-'));
  const removeData = () => rmSync(data, { recursive: true, force: true, maxRetries: 3 });
  process.once('exit', removeData);
  let state = () => 'not started';
  const closing: (() => unknown)[] = [() => process.off('exit', removeData), removeData];
  try {
    options.onProgress?.(`${setting}: starting`);
    const group = await RedisGroup.open({ logs: folder, data });
    closing.push(() => group.stop());
    const history = new HistoryWriter(join(folder, historyFile), {
      pools: { [pool]: { kind: 'exclusive', pods: podNames(options.pods) } },
      ...{ lease_ms: times.leaseMs, report_grace_ms: times.graceMs },
      notes: `failover, setting ${setting}, seed ${options.seed}`,
    });
    closing.push(() => history.close());
    const env = { ...environment(setting, options.pods), REDIS_URL: group.url };
    const routers = await Routers.open(folder, env, history);
    closing.push(() => routers.stop());
    await routers.untilReady();
    const random = new SeededRandom(options.seed);
    const faultOf = faultOrder(options, random);
    const traffic = new Traffic(options, routers, history, newRound(setting, 1, faultOf(1)));
    closing.push(() => traffic.stop());
    const capacity = new Capacity(group, traffic, podNames(options.pods));
    state = () => capacity.state;
    closing.push(() => capacity.stop());
    void traffic.run();
    void capacity.run();
    const untilFull = (sinceMs: number) =>
      until(
        () => {
          if (routers.ended.length > 0) throw new Error(routers.ended.join('; '));
          const fullMs = capacity.fullSinceMs;
          return fullMs !== undefined && performance.now() - Math.max(fullMs, sinceMs) > steadyMs && fullMs;
        },
        'every pod without a call is available',
        120_000,
      );
    await untilFull(0);
    for (let number = 1; number <= options.rounds && !options.signal?.aborted; number += 1) {
      const round = newRound(setting, number, faultOf(number));
      traffic.round = round;
      traffic.released.clear();
      await wait(random.between(500, 2500));
      options.onProgress?.(`${setting}: round ${number} of ${options.rounds}, ${round.fault}`);
      const master = await group.untilMaster();
      const startMs = performance.now();
      const heal = await begin(round.fault, master, group);
      const next = await group.untilMaster(master);
      round.masterAtMs = performance.now();
      round.newMasterMs = round.masterAtMs - startMs;
      if (round.fault !== 'planned') await wait(random.between(0, 2000));
      await heal(next);
      const healedMs = performance.now();
      history.fault(round.fault, startMs, healedMs);
      await group.untilComplete();
      await routers.untilReady();
      const fullMs = await untilFull(performance.now());
      round.fullCapacityMs = Math.max(round.newMasterMs, fullMs - startMs);
      rounds.push(round);
      options.onRound?.(round);
    }
  } catch (error) {
    throw new Error(`${setting}: ${(error as Error).message}; store: ${state()}; logs: ${folder}`, {
      cause: error,
    });
  } finally {
    for (const close of closing.reverse()) await close();
  }
}

/** Every fault once before any of them a second time, in an order of the seed. */
function faultOrder({ faults, rounds }: FailoverOptions, random: SeededRandom): (round: number) => FaultName {
  const order: FaultName[] = [];
  while (order.length < rounds) order.push(...random.shuffled(faults));
  return (round) => order[round - 1] ?? (faults[0] as FaultName);
}

/** Resolves to what ends the fault, given the new master. */
async function begin(
  fault: FaultName,
  master: RedisNode,
  group: RedisGroup,
): Promise<(next: RedisNode) => unknown> {
  if (fault === 'planned') {
    await group.failOver();
    return () => {};
  }
  if (fault === 'kill') {
    await master.server.kill();
    return (next) => master.replicaOf(next);
  }
  if (fault === 'stop') {
    master.server.pause();
    return () => master.server.resume();
  }
  master.cut();
  return () => master.proxy.pass();
}

function newRound(setting: Setting, number: number, fault: FaultName): Round {
  return {
    ...{ setting, number, fault, calls: 0, doubles: 0, longestOverlapMs: 0 },
    ...{
      lostReleases: 0,
      lostReleaseFreeMs: 0,
      refused: {},
      dropped: 0,
      newMasterMs: 0,
      masterAtMs: 0,
      fullCapacityMs: 0,
    },
  };
}
