/** One failover of each kind, with real servers, Sentinels, routers and agents; the independent checker judges the answers. */
import { expect, it } from 'vitest';
import { nativeAvailable } from '../support/engines.js';
import { failover } from './failover.js';
import type { FaultName, Setting } from './settings.js';

const run = (setting: Setting, faults: readonly FaultName[]) =>
  failover({
    ...{ settings: [setting], faults, rounds: faults.length },
    ...{ agents: true, seed: 7, callsPerSecond: 20, pods: 100 },
  });

it('with replicas waited for and reports first, a failover gives no pod twice and loses no call', async (test) => {
  const native = nativeAvailable();
  if (native !== true) return test.skip(native);
  const { rounds, verdicts } = await run('both', ['kill', 'stop', 'partition', 'planned']);
  expect(verdicts.both?.violations).toEqual([]);
  expect(rounds.map(({ doubles }) => doubles)).toEqual([0, 0, 0, 0]);
  expect(rounds.find(({ fault }) => fault === 'planned')?.refused).toEqual({});
}, 400_000);

it('without them the checker finds what a partition loses', async (test) => {
  const native = nativeAvailable();
  if (native !== true) return test.skip(native);
  const { verdicts } = await run('plain', ['partition']);
  expect(verdicts.plain?.violations).not.toEqual([]);
}, 200_000);
