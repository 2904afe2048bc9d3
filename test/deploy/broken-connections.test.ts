/** Every shipped program that waits for a drain, as a process, against a router whose connections break. */
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, it } from 'vitest';
import { useBinary } from '../cli/support.js';
import { findOnPath } from '../support/engines.js';
import { readText, root } from './manifests.js';
import { startShipped } from './shipped-program.js';

const binary = useBinary();
const { version } = JSON.parse(readText('package.json'));
const drained = (calls: number) => ({
  success: true,
  pod_name: 'gold-1',
  has_active_call: calls > 0,
  active_calls: calls,
  message: 'It drains.',
});
const bytes = (body: object) => {
  const text = JSON.stringify(body);
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
};

const silent = 'says nothing';
const slow = 'answers one byte at a time';
const atOnce = 'accepts and closes at once';
type Breakage = (socket: Socket) => void;
/** The answer that is cut says "no calls" before the cut: half of an answer must not count. */
const cut = bytes(drained(0)).slice(0, -5);
const breakages: Record<string, Breakage> = {
  [silent]: (socket) => socket.resume(),
  [atOnce]: (socket) => socket.destroy(),
  'closes in the middle of its answer': (socket) => socket.once('data', () => socket.end(cut)),
  [slow]: (socket) =>
    socket.once('data', async () => {
      for (const byte of bytes(drained(1))) {
        socket.write(byte);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
      socket.end();
    }),
};

interface Broken {
  url: string;
  /** The user agents of the requests. */
  readonly agents: Set<string>;
  /** Whether a complete answer said that no call is left. */
  readonly saidNoCalls: boolean;
  stop(): void;
}

/** A router with one live call: `good` connections first, then `broken` ones, and soon after those its call ends. */
async function startBroken(breakage: Breakage, good: number, broken: number): Promise<Broken> {
  const agents = new Set<string>();
  let connections = 0;
  let answers = 0;
  let saidNoCalls = false;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined).on('close', () => sockets.delete(socket)));
    connections += 1;
    if (connections > good && connections <= good + broken) return breakage(socket);
    const isLate = connections > good;
    socket.on('data', (data) => {
      agents.add(/^user-agent: (.*)$/im.exec(data.toString())?.[1] ?? '');
      if (isLate) answers += 1;
      // One more answer with a live call: being reachable again must not end the wait.
      saidNoCalls ||= answers > 1;
      const calls = saidNoCalls ? 0 : 1;
      const pod = {
        pod_name: 'gold-1',
        calls: Array(calls).fill('CA1'),
        is_draining: true,
        draining_until: null,
      };
      socket.end(bytes(data.toString().startsWith('GET ') ? pod : drained(calls)));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    agents,
    stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get saidNoCalls() {
      return saidNoCalls;
    },
  };
}

/** A short script, as a team writes it: nothing else keeps its process alive. */
const script = `
import { createClient } from '${root}dist/client/index.js';
const client = createClient({ baseUrl: process.env.SMART_ROUTER_URL, timeoutMs: 200, retries: 0,
  onEvent: ({ error }) => console.error(error.message) });
for (;;) {
  const { activeCalls } = await client.drain('gold-1', { wait: '1s' }).catch((error) => {
    console.error(error.message);
    return {};
  });
  if (activeCalls === 0) break;
}
console.error('no calls left');`;

interface Program {
  name: string;
  command: string | undefined;
  args(breaks: string): string[];
  /** Connections that work before the first that breaks, and how many break then. */
  good: number;
  broken: number;
}
const hook = (name: string) => ({ name, args: () => [`${root}deploy/examples/${name}`], good: 0, broken: 1 });
const programs: Program[] = [
  { ...hook('drain-and-wait.mjs'), command: process.execPath },
  { ...hook('drain-and-wait.sh'), command: findOnPath('curl') && findOnPath('sh') },
  {
    name: 'smart-router/client',
    command: process.execPath,
    args: () => ['--input-type=module', '--eval', script],
    good: 0,
    broken: 2,
  },
  {
    name: 'drain --wait',
    command: process.execPath,
    // A router that never answers is noticed only at the timeout.
    args: (breaks) => [
      binary.path,
      'drain',
      'gold-1',
      '--timeout',
      '1s',
      '--wait',
      breaks === silent ? '3s' : '20s',
    ],
    // Before the drain is acknowledged it fails with one line: see test/cli/failing.test.ts. It reads the pod as well.
    good: 1,
    broken: 3,
  },
];

describe('a router behind connections that break', () => {
  it.concurrent.for(programs)(
    '$name keeps waiting while connections break, and ends when no call is left',
    async ({ name, command, args, good, broken }, { onTestFinished, expect, skip }) => {
      if (command === undefined) return skip('curl is not on PATH');
      const ends = Object.entries(breakages).map(async ([breaks, breakage]) => {
        // Several, but fewer than open the breaker: fetch misses the end of a connection only when it comes before the request goes out.
        const router = await startBroken(breakage, good, breaks === atOnce ? 4 : broken);
        onTestFinished(router.stop);
        const running = startShipped(command, args(breaks), {
          PATH: process.env.PATH,
          SMART_ROUTER_URL: router.url,
          SMART_ROUTER_API_KEY: 'a-key',
          POD_NAME: 'gold-1',
          DRAIN_WAIT_SECONDS: '0',
        });
        onTestFinished(running.end);
        const code = await running.ended;
        return { breaks, code, ...router, saidNoCalls: router.saidNoCalls, output: running.output };
      });
      for (const { breaks, code, saidNoCalls, output, agents } of await Promise.all(ends)) {
        const timeIsUp = name === 'drain --wait' && breaks === silent;
        expect({ breaks, output, code, saidNoCalls: saidNoCalls || timeIsUp }).toEqual({
          breaks,
          output: expect.stringMatching(timeIsUp ? /did not answer/ : /no calls/),
          code: timeIsUp ? 6 : 0,
          saidNoCalls: true,
        });
        expect([...agents].filter((agent) => agent !== `smart-router/${version}`)).toEqual([]);
        if (breaks !== slow) expect(output).toMatch(/did not answer|cannot reach|could not be reached/);
      }
    },
  );
});
