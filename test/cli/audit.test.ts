/** The audit from the command line: what it shows, and what its exit code says. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { documentOf, runner, startTestRouter, useStore } from './support.js';

const store = useStore();
let router: RunningRouter;
const run = runner(() => router.url);

beforeEach(async () => {
  // No sweep repairs the damage of a test.
  router = await startTestRouter(await store.emptied(), {
    RECONCILE_INTERVAL: '1h',
    CLEANUP_INTERVAL: '20m',
  });
});
afterEach(() => router.stop());

const tamper = (...args: string[]) =>
  router.context.store.connection.command('test', async (client) => {
    await client.call(args[0] as string, ...args.slice(1));
  });

it('of a healthy router shows what it has looked at and exits 0', async () => {
  const { code, stdout, stderr } = await run('audit');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(/^pools {7}3$/m);
  expect(stdout).toMatch(/^pods {8}4$/m);
  expect(stdout).toMatch(/^calls {7}0$/m);
  expect(stdout).toMatch(/^took {8}\d+ ms$/m);
  expect(stdout).toMatch(/^violations {2}none$/m);
  expect(stdout).toMatch(/^pending {5}none$/m);
  expect(documentOf(await run('audit --json'))).toMatchObject({
    success: true,
    complete: true,
    violation_count: 0,
    violations: [],
  });
});

it('with violations prints one sentence each and exits 8', async () => {
  await tamper('SADD', 'voice:pool:gold:assigned', 'ghost');
  await tamper('SET', 'voice:notes', 'x');
  const { code, stdout, stderr } = await run('audit');
  expect({ code, stderr }).toEqual({
    code: 8,
    stderr: 'smart-router: 1 violation found\n',
  });
  expect(stdout).toMatch(/^VIOLATIONS\npool:gold has the unregistered pod ghost assigned: .+$/m);
  expect(stdout).toMatch(/^PENDING\nkey voice:notes \(string\) is in no list of keys: .+$/m);
  expect(documentOf(await run('audit --json'))).toMatchObject({
    success: false,
    code: 'violations_found',
    violation_count: 1,
    violations: [{ kind: 'assigned_unregistered', pod_name: 'ghost' }],
  });
});

it('with pending findings only exits 0', async () => {
  await tamper('DEL', 'voice:pool:gold:available');
  const { code, stdout, stderr } = await run('audit');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(/^violations {2}none$/m);
  expect(stdout).toMatch(/8: lacks .*: the sweep makes it available within CLEANUP_INTERVAL$/m);
});
