/** What the sidecar accepts over HTTP, and what it loads. No router is needed for either. */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startAgent } from '../../src/agent/index.js';
import { PodCalls } from '../../src/agent/pod-calls.js';
import { loadAgentConfig } from '../../src/config/agent.js';
import { ManualClock } from '../support/manual-clock.js';
import { until } from '../support/until.js';
import { type Sidecar, startSidecar } from './support.js';

/** Nothing listens on this port. */
const noRouter = 1;
const config = (env: Record<string, string> = {}) =>
  loadAgentConfig({ SMART_ROUTER_URL: 'http://127.0.0.1:1', POD_NAME: 'gold-1', AGENT_PORT: '0', ...env });

describe('requests to the sidecar', () => {
  const bad: [string, number, string, (sidecar: Sidecar) => ReturnType<Sidecar['ask']>][] = [
    ['an unknown path', 404, 'not_found', ({ ask }) => ask('GET', '/')],
    ['a path below a call', 404, 'not_found', ({ ask }) => ask('PUT', '/calls/CA1/x')],
    ['a call without a SID', 404, 'not_found', ({ ask }) => ask('PUT', '/calls/')],
    ['a wrong method of a call', 405, 'method_not_allowed', ({ ask }) => ask('POST', '/calls/CA1')],
    ['a wrong method of the list', 405, 'method_not_allowed', ({ ask }) => ask('DELETE', '/calls')],
    ['GET of the drain', 405, 'method_not_allowed', ({ ask }) => ask('GET', '/drain')],
    ['an inherited property as path', 404, 'not_found', ({ ask }) => ask('GET', '/constructor')],
    ['a SID with a control character', 400, 'invalid_request', ({ ask }) => ask('PUT', '/calls/CA%0A')],
    ['a SID that is not UTF-8', 400, 'invalid_request', ({ ask }) => ask('PUT', '/calls/%ff')],
    ['a SID that is too long', 400, 'invalid_request', ({ ask }) => ask('PUT', `/calls/${'x'.repeat(257)}`)],
    ['a body that is not JSON', 400, 'invalid_request', ({ ask }) => ask('PUT', '/calls/CA1', { body: '{' })],
    ['a body that is null', 400, 'invalid_request', ({ ask }) => ask('PUT', '/calls/CA1', { body: 'null' })],
    ['a list as body', 400, 'invalid_request', ({ ask }) => ask('PUT', '/calls/CA1', { body: '[1]' })],
    [
      'a fence that is text',
      400,
      'invalid_request',
      ({ ask }) => ask('PUT', '/calls/CA1', { body: '{"fence":"1"}' }),
    ],
    [
      'an unknown field',
      400,
      'invalid_request',
      ({ ask }) => ask('PUT', '/calls/CA1', { body: '{"pod":"x"}' }),
    ],
    [
      'a body over 4 KiB',
      413,
      'payload_too_large',
      ({ ask }) => ask('PUT', '/calls/CA1', { body: ' '.repeat(5000) }),
    ],
    ['the end of an unknown call', 200, 'none', ({ ask }) => ask('DELETE', '/calls/CA1')],
    [
      'a name of a stranger in Host (DNS rebinding)',
      403,
      'forbidden',
      ({ ask }) => ask('GET', '/calls', { headers: { host: 'evil.example.com:9357' } }),
    ],
    [
      'a web page',
      403,
      'forbidden',
      ({ ask }) => ask('POST', '/drain', { headers: { origin: 'https://evil.example.com' } }),
    ],
  ];

  it.each(bad)('%s is answered with %i in one line', async (_, status, code, send) => {
    const sidecar = await startSidecar(noRouter);
    const answer = await send(sidecar);
    expect([answer.status, answer.body.code ?? 'none']).toEqual([status, code]);
    expect(answer.text).toMatch(/^\{[^\n]*\}\n$/);
    expect((await sidecar.ask('GET', '/calls')).body.calls).toEqual([]);
  });

  it.each(['localhost', 'LOCALHOST:9357', '127.0.0.1', '[::1]:9357'])('accepts the Host %s', async (host) => {
    const sidecar = await startSidecar(noRouter);
    expect((await sidecar.ask('GET', '/health', { headers: { host } })).status).toBe(200);
  });

  it('answers bytes that are not HTTP with 400 and JSON', async () => {
    const { port } = new URL((await startSidecar(noRouter)).url);
    const text = await new Promise<string>((resolve, reject) => {
      let received = '';
      const socket = connect(Number(port), '127.0.0.1', () => socket.write('hello\r\n\r\n'));
      socket.on('data', (chunk) => {
        received += chunk;
      });
      socket.on('error', reject).on('close', () => resolve(received));
    });
    expect(text).toMatch(/^HTTP\/1.1 400 [\s\S]*"code":"invalid_request"\}\n$/);
  });

  it('holds at most 10,000 calls', async () => {
    const calls = new PodCalls(config(), { clock: new ManualClock(), log: () => {} });
    calls.start();
    onTestFinished(() => calls.close());
    for (let n = 0; n < 10_000; n++) void calls.arrive(`CA${n}`, undefined);
    await expect(calls.arrive('CA-more', undefined)).rejects.toMatchObject({ code: 'too_many_requests' });
    expect(calls.size).toBe(10_000);
  });

  it('does not wait for half of a request when it stops, nor answer a drain as if calls had ended', async () => {
    const sidecar = await startSidecar(noRouter, {}, 100);
    const { port } = new URL(sidecar.url);
    const socket = connect(Number(port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket
      .on('error', () => {})
      .write('PUT /calls/CA1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n');
    const put = sidecar.ask('PUT', '/calls/CA2');
    await until(async () => (await sidecar.calls()).length === 1, 'the call has arrived');
    // The router is unreachable: the agent gets its answer after its time.
    expect((await put).body).toMatchObject({ success: true, confirmed: false });
    const drain = sidecar.ask('POST', '/drain');
    await until(async () => (await sidecar.ask('GET', '/calls')).body.is_draining, 'it drains');
    await sidecar.stop();
    expect((await drain).body).toMatchObject({ success: false, code: 'shutting_down' });
  });

  it('fails to start with one line if its port is in use', async () => {
    const { url } = await startSidecar(noRouter);
    const { port } = new URL(url);
    await expect(startAgent(config({ AGENT_PORT: port }))).rejects.toMatchObject({
      problems: [`cannot listen on 127.0.0.1:${port}: the port is in use; set another AGENT_PORT`],
    });
  });
});

describe('the environment of the sidecar', () => {
  const problemsOf = (env: Record<string, string>) => {
    try {
      loadAgentConfig(env);
      return [];
    } catch (error) {
      return (error as { problems: string[] }).problems;
    }
  };

  it('needs POD_NAME only', () => {
    expect(problemsOf({ POD_NAME: 'a' })).toEqual([]);
    expect(problemsOf({})).toEqual([expect.stringMatching(/^POD_NAME must be set /)]);
  });

  it('names every wrong value, and shows no key', () => {
    const problems = problemsOf({
      POD_NAME: 'Not A Pod',
      SMART_ROUTER_URL: 'redis://user:secret@host',
      SMART_ROUTER_API_KEY: 'secret key',
      AGENT_PORT: '70000',
      AGENT_HEALTH_URL: 'localhost:8080',
    });
    expect(problems.map((line) => line.split(' ')[0]).sort()).toEqual([
      'AGENT_HEALTH_URL',
      'AGENT_PORT',
      'POD_NAME',
      'SMART_ROUTER_API_KEY',
      'SMART_ROUTER_URL',
    ]);
    expect(problems.join('\n')).not.toMatch(/secret(?!')@|secret key/);
  });

  it('accepts the address of the API', () => {
    expect(config({ SMART_ROUTER_URL: 'https://router.example.com/api/v1/' }).url).toBe(
      'https://router.example.com',
    );
  });
});

it('the command loads only commander, and no other command', () => {
  const root = fileURLToPath(new URL('../../src', import.meta.url));
  const files = new Set<string>();
  const packages = new Set<string>();
  const visit = (file: string) => {
    if (files.has(file)) return;
    files.add(file);
    const text = readFileSync(file, 'utf8');
    for (const [, target = ''] of text.matchAll(/^(?:import|export)\s(?!type\b)[^;]*?from '([^']+)';/gm)) {
      if (target.startsWith('.')) visit(join(dirname(file), target.replace(/\.js$/, '.ts')));
      else packages.add(target);
    }
  };
  visit(join(root, 'cli/index.ts'));
  visit(join(root, 'agent/index.ts'));
  expect([...packages].filter((name) => !name.startsWith('node:'))).toEqual(['commander']);
  // TLS and HTTP/2 are loaded when they are needed.
  expect([...packages].filter((name) => /https|http2|tls/.test(name))).toEqual([]);
  const folders = new Set([...files].map((file) => relative(root, file).split('/').slice(0, -1).join('/')));
  expect([...folders].sort()).toEqual(['', 'agent', 'cli', 'cli/commands', 'client', 'config', 'terminal']);
  expect([...files].filter((file) => file.includes('/commands/'))).toHaveLength(1);
});
