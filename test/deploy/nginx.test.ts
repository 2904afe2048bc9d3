/**
 * The proxy in front of the voice agents: the shipped configuration in a real nginx, its variables filled in as the
 * image does it, with a small DNS server of our own in place of the cluster's.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findOnPath, setupReason } from '../support/engines.js';
import { freePorts } from '../support/ports.js';
import { until } from '../support/until.js';
import { readText } from './manifests.js';

const domain = 'voice-agent.voice.svc.cluster.local';
const nginx = findOnPath('nginx');
const suite = nginx === undefined ? describe.skip : describe;
const reason = nginx === undefined ? ` [nginx is not on PATH${setupReason('nginx')}]` : '';

suite(`the proxy${reason}`, () => {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-nginx-'));
  const asked: string[] = [];
  let dns: UdpSocket;
  let agent: Server;
  let proxy: ChildProcess;
  let port: number;
  let config: string;

  beforeAll(async () => {
    dns = await startDns(asked);
    agent = await startAgent();
    [port = 0] = await freePorts(1);
    const values: Record<string, string> = {
      LISTEN_PORT: `127.0.0.1:${port}`,
      NGINX_LOCAL_RESOLVERS: `127.0.0.1:${dns.address().port}`,
      AGENT_DOMAIN: domain,
      AGENT_PORT: String((agent.address() as AddressInfo).port),
    };
    config = join(folder, 'nginx.conf');
    const text = readText('deploy/nginx/nginx.conf')
      .replace(/\$\{([A-Z_]+)\}/g, (whole, name: string) => values[name] ?? whole)
      // A private folder, so that the machine's own nginx is not disturbed.
      .replaceAll('/tmp/', `${folder}/`);
    writeFileSync(config, text);
    proxy = spawn(nginx ?? '', ['-c', config, '-g', 'daemon off;'], { stdio: 'ignore' });
    await until(async () => (await ask('/healthz', {})).status === 200, 'nginx answers');
  });
  afterAll(async () => {
    const ended = new Promise((resolve) => proxy.once('exit', resolve));
    proxy.kill('SIGTERM');
    await ended;
    agent.closeAllConnections();
    agent.close();
    dns.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const websocket = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-key': 'x' };

  /** The status of the answer, and after an upgrade the reply to `ping`. */
  function ask(path: string, headers: Record<string, string> = websocket) {
    return new Promise<{ status: number; echo?: string }>((resolve, reject) => {
      const asking = request({ host: '127.0.0.1', port, path, headers, agent: false });
      asking.once('error', reject);
      asking.once('response', (response) => {
        response.resume();
        resolve({ status: response.statusCode ?? 0 });
      });
      asking.once('upgrade', (response, socket) => {
        socket.once('data', (data: Buffer) => {
          resolve({ status: response.statusCode ?? 0, echo: data.toString() });
          socket.destroy();
        });
        socket.write('ping');
      });
      asking.end();
    });
  }

  it('nginx -t accepts the configuration', () => {
    // Its log goes to /dev/stderr, which cannot be opened when that is a socket, as Node's pipes are.
    const said = openSync(join(folder, 'nginx-t.txt'), 'w');
    const { status } = spawnSync(nginx ?? '', ['-t', '-c', config], { stdio: ['ignore', said, said] });
    closeSync(said);
    const text = readFileSync(join(folder, 'nginx-t.txt'), 'utf8');
    expect(text).toContain('test is successful');
    expect(text).not.toContain('[warn]');
    expect(status).toBe(0);
  });

  it('forwards a websocket to its pod, path and query unchanged, and audio both ways', async () => {
    const path = '/ws/pod/voice-agent-0/agent/voice/breeze-buddy/twilio/callback/a%20b/v2?x=1';
    expect(await ask(path)).toEqual({ status: 101, echo: `${path} said ping` });
    expect(asked).toContain(`voice-agent-0.${domain}`);
  });

  it('answers 502 soon for a pod that does not exist', async () => {
    expect((await ask('/ws/pod/voice-agent-9/x')).status).toBe(502);
  });

  it.each([
    ['a name with a dot', '/ws/pod/evil.example.com/x'],
    ['an encoded dot', '/ws/pod/evil%2eexample/x'],
    ['a port', '/ws/pod/voice-agent-0:22/x'],
    ['user information', '/ws/pod/a@evil/x'],
    ['an encoded line break', '/ws/pod/a%0d%0ab/x'],
    ['upper case', '/ws/pod/Voice-Agent-0/x'],
    ['a hyphen at the end', '/ws/pod/voice-agent-/x'],
    ['64 characters', `/ws/pod/${'a'.repeat(64)}/x`],
    ['no name', '/ws/pod//x'],
    ['no path behind the name', '/ws/pod/voice-agent-0'],
    ['another path', '/api/v1/status'],
    ['a way out', '/ws/pod/voice-agent-0/../../../etc'],
  ])('%s reaches no pod', async (_, path) => {
    const before = asked.length;
    expect((await ask(path)).status).toBe(404);
    expect(asked.slice(before)).toEqual([]);
  });

  it('looks up a name with an encoded slash below the agents’ domain only', async () => {
    const before = asked.length;
    expect((await ask('/ws/pod/evil%2f.example.com/x')).status).toBe(502);
    expect([...new Set(asked.slice(before))]).toEqual([`evil.${domain}`]);
  });

  it('answers 426 to a request without an upgrade', async () => {
    expect((await ask('/ws/pod/voice-agent-0/x', {})).status).toBe(426);
  });
});

/** Knows one pod; everything else does not exist. */
async function startDns(asked: string[]): Promise<UdpSocket> {
  const server = createSocket('udp4');
  server.on('message', (query, from) => {
    const labels: string[] = [];
    let at = 12;
    for (let size = query[at] ?? 0; size > 0; size = query[at] ?? 0) {
      labels.push(query.toString('latin1', at + 1, at + 1 + size));
      at += 1 + size;
    }
    const name = labels.join('.');
    asked.push(name);
    const question = query.subarray(12, at + 5);
    const known = name === `voice-agent-0.${domain}`;
    const isA = query.readUInt16BE(at + 1) === 1;
    const header = Buffer.alloc(12);
    query.copy(header, 0, 0, 2);
    header.writeUInt16BE(known ? 0x8180 : 0x8183, 2);
    header.writeUInt16BE(1, 4);
    header.writeUInt16BE(known && isA ? 1 : 0, 6);
    const answer = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    server.send(
      Buffer.concat(known && isA ? [header, question, answer] : [header, question]),
      from.port,
      from.address,
    );
  });
  await new Promise<void>((resolve) => server.bind(0, '127.0.0.1', resolve));
  return server;
}

/** Accepts every upgrade and echoes each message, with the path of the request. */
async function startAgent(): Promise<Server> {
  const server = createServer();
  server.on('upgrade', (asked, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n');
    socket.on('data', (data: Buffer) => socket.write(`${asked.url} said ${data}`));
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}
