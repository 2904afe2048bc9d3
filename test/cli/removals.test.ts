/** The removal brake from the command line. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { holdGhosts } from '../support/held-removals.js';
import { until } from '../support/until.js';
import { documentOf, runner, startTestRouter, useStore } from './support.js';

const store = useStore();
let router: RunningRouter;
const run = runner(() => router.url);

beforeEach(async () => {
  router = await startTestRouter(await store.emptied(), { RECONCILE_INTERVAL: '1h' });
});
afterEach(() => router.stop());

it('removals list names held pods and the next step, and status has a line', async () => {
  await holdGhosts(router);
  const { code, stdout, stderr } = await run('removals list');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(/^POD +REMOVAL$/m);
  expect(stdout).toMatch(/^ghost-1 {2}held$/m);
  expect(stdout).toContain('5 pods held.');
  expect(stdout).toContain('`smart-router removals confirm`');
  expect(documentOf(await run('removals list --json'))).toEqual({
    success: true,
    held: ['ghost-1', 'ghost-2', 'ghost-3', 'ghost-4', 'ghost-5'],
    confirmed: [],
  });
  expect((await run('status')).stdout).toMatch(/^removals {2}5 pods held by the removal brake: /m);
});

it('removals confirm prints the count, and the leader removes the pods', async () => {
  await holdGhosts(router);
  const { code, stdout, stderr } = await run('removals confirm');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toBe('5 removals confirmed; the leader removes the pods in its next round\n');
  await until(async () => (await router.context.pools.removals()).held.length === 0, 'they are removed');
});

it('without held pods, list says so, status has no line, and confirm exits 4', async () => {
  expect(await run('removals list')).toMatchObject({ code: 0, stdout: 'the removal brake holds no pods\n' });
  expect((await run('status')).stdout).not.toContain('removals');
  expect(await run('removals confirm')).toEqual({
    code: 4,
    stdout: '',
    stderr: 'smart-router: the removal brake holds no pod: there is nothing to confirm\n',
  });
  expect(documentOf(await run('removals confirm --json'))).toMatchObject({
    success: false,
    code: 'nothing_held',
  });
});
