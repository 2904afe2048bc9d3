/** `smart-router agent` as a process: signals, a kill, and failures to start. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { askOnce } from '../support/router.js';
import { until } from '../support/until.js';
import {
  allocateOn,
  documentOf,
  type Started,
  start,
  startTestRouter,
  useBinary,
  useStore,
} from './support.js';

const binary = useBinary();
const store = useStore();

describe('agent', () => {
  let router: RunningRouter;
  beforeAll(async () => {
    router = await startTestRouter(await store.emptied());
  });
  afterAll(() => router.stop());

  async function startAgent() {
    const env = { SMART_ROUTER_URL: router.url, POD_NAME: 'pod-c', AGENT_PORT: '0' };
    const sidecar = start(binary, ['agent'], { env });
    let text = '';
    sidecar.child.stdout?.on('data', (chunk: string) => {
      text += chunk;
    });
    const port = await until(() => /"url":"http:\/\/127\.0\.0\.1:(\d+)"/.exec(text)?.[1], 'it listens');
    const ask = (method: string, path: string) => askOnce({ host: '127.0.0.1', port, path }, { method });
    return { ...sidecar, ask };
  }
  const endOf = ({ ended }: Started) => ended;
  const callsOf = async () => (await router.context.store.pod('pod-c')).calls.map(({ callSid }) => callSid);

  it('restores its calls after a kill; on SIGTERM it drains and ends after the last call', async () => {
    const first = await startAgent();
    await until(async () => (await first.ask('PUT', '/calls/CA1')).body.confirmed, 'the call is reported');
    first.child.kill('SIGKILL');
    await endOf(first);
    expect(await callsOf()).toEqual(['CA1']);

    const second = await startAgent();
    await until(async () => (await second.ask('GET', '/calls')).body.calls[0]?.confirmed, 'it is restored');
    second.child.kill('SIGTERM');
    await until(async () => (await second.ask('GET', '/calls')).body.is_draining, 'it drains');
    await until(
      async () => (await router.context.store.pod('pod-c')).blockedBy === 'draining',
      'the pod drains',
    );
    expect(second.child.exitCode).toBeNull();
    expect((await second.ask('DELETE', '/calls/CA1')).body).toMatchObject({ success: true });
    const { code, stdout, stderr } = await endOf(second);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/"msg":"stopped"\}\n$/);
    expect(await callsOf()).toEqual([]);
  });

  it('a second signal ends it at once; its calls live on', async () => {
    const sidecar = await startAgent();
    await until(async () => (await sidecar.ask('PUT', '/calls/CA2')).body.confirmed, 'the call is reported');
    sidecar.child.kill('SIGTERM');
    await until(async () => (await sidecar.ask('GET', '/calls')).body.is_draining, 'it drains');
    sidecar.child.kill('SIGTERM');
    expect((await endOf(sidecar)).code).toBe(130);
    expect(await callsOf()).toEqual(['CA2']);
    expect((await allocateOn(router, 'CA2')).podName).toBe('pod-c');
  });
});

describe('agent does not start', () => {
  it('without POD_NAME: one line and exit code 2', async () => {
    const { code, stdout, stderr } = await start(binary, ['agent']).ended;
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^smart-router: POD_NAME must be set [^\n]+\n$/);
  });

  it('with --json: one document', async () => {
    const ended = await start(binary, ['agent', '--json'], { env: { POD_NAME: 'a', AGENT_PORT: 'x' } }).ended;
    expect(documentOf(ended)).toMatchObject({ success: false, code: 'configuration' });
    expect(ended.code).toBe(2);
  });

  it('with an unknown option: the usage', async () => {
    const { code, stderr } = await start(binary, ['agent', '--prot', '1'], { env: { POD_NAME: 'a' } }).ended;
    expect(code).toBe(2);
    expect(stderr).toContain('See `smart-router agent --help`.');
  });
});
