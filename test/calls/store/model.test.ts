/**
 * Random operations on the real store and on a model of it, which must agree after every step: answers, truth,
 * derived keys, invariants. A failure prints seed and path; `fc.assert(..., { seed, path })` replays it.
 * `PROPERTY_RUNS` sets the number of scenarios per engine.
 */
import fc from 'fast-check';
import { it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { anyScenario, type Op, plainRegister } from '../../support/model/operations.js';
import { runScenario } from '../../support/model/run.js';
import { propertyRuns } from '../../support/property-runs.js';

const runs = propertyRuns(200);

const report = (pod: string, ...sids: string[]) => ({ op: 'report', pod, own: false, sids, uid: '' }) as Op;
const allocate = (sid: string, chain: number) => ({ op: 'allocate', sid, chain }) as Op;
const deleteRecord = (sid: string) => ({ op: 'tamper', how: 'del call', pod: 'a', sid }) as Op;
const drain = (pod: string) => ({ op: 'drain', pod, waitMs: 0, uid: '' }) as Op;
const advance = (ms: number) => ({ op: 'advance', ms }) as Op;
const sweep = (pool: 'all' | 'merchant:vip') => ({ op: 'sweep', pool }) as Op;
const vipFirst = 3;
const basicOnly = 1;

/** What random scenarios found, cut down. Pods a and b are gold, c and d basic (shared), e is the merchant's. */
const found: [outcome: string, ops: Op[]][] = [
  [
    'a blocked pod shows no call that a sweep has ended',
    [allocate('C1', vipFirst), drain('e'), deleteRecord('C1'), sweep('all')],
  ],
  [
    'a report without a call that has moved on to another pod does not end it there',
    [
      ...[report('e', 'C1'), deleteRecord('C1'), allocate('C1', basicOnly), report('e')],
      ...[advance(30_000), report('e'), sweep('all')],
    ],
  ],
  [
    'the index of a pool forgets a call that has moved on to another pool',
    [report('e', 'C1'), deleteRecord('C1'), report('a', 'C1'), sweep('all')],
  ],
  [
    'an expired index entry is not restored for a call of another pool',
    [
      ...[report('e', 'C1'), advance(330_001), deleteRecord('C1'), allocate('C1', basicOnly)],
      ...[advance(600_000), sweep('merchant:vip'), sweep('all')],
    ],
  ],
  [
    'a pod that leaves takes only its own calls out of the index',
    [
      ...[report('a', 'C1'), deleteRecord('C1'), report('b', 'C1')],
      { ...plainRegister, pod: 'a', pool: 'merchant:acme' },
    ],
  ],
  [
    'a removed pod does not count a call as lost that lives on another one',
    [report('a', 'C1'), deleteRecord('C1'), report('b', 'C1'), { op: 'remove', pod: 'a' }],
  ],
  [
    'a failover takes a suspended pod out of a damaged available set',
    [
      { op: 'suspend', pod: 'a', reason: 'terminating' },
      report('a'),
      { op: 'tamper', how: 'put', pod: 'a', sid: 'C1' },
      { op: 'failover' },
    ],
  ],
  [
    'a call that comes again to the shared pod it was on counts once',
    [drain('d'), allocate('C1', basicOnly), deleteRecord('C1'), allocate('C1', basicOnly)],
  ],
];

describeEngines('store against its model', (engine) => {
  it.each(found)('%s', async (_, ops) => {
    await runScenario(engine, { noShowTimeoutMs: 0, ops });
  });

  it(`agrees with the model over ${runs} random scenarios`, { timeout: 60_000 + runs * 1000 }, async () => {
    await fc.assert(
      fc.asyncProperty(anyScenario, (scenario) => runScenario(engine, scenario)),
      { numRuns: runs },
    );
  });
});
