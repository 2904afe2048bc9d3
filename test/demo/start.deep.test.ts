/** Start and end of the demo, with each of its options. */
import { spawn } from 'node:child_process';
import { afterEach, describe, expect, test } from 'vitest';
import { describeTerminal, startOnTerminal } from '../cli/pty.js';
import { until } from '../support/until.js';
import { binary, Demo, hasPostgres, isRunning, listenSomewhere, waitMs } from './support.js';

const started: Demo[] = [];
function start(env: NodeJS.ProcessEnv = {}, ...args: string[]): Demo {
  const demo = new Demo(env, ...args);
  started.push(demo);
  return demo;
}

afterEach(() => Promise.all(started.splice(0).map((demo) => demo.end())));

describe('smart-router demo', { timeout: 2 * waitMs }, () => {
  test('takes the next free port, runs without records, and exits with 0 on quit', async () => {
    const { server, port } = await listenSomewhere();
    const demo = start({ DATABASE_URL: 'off' }, '--port', String(port), '--no-story');
    await demo.until(/^[\d:]{8} {2}records {3}disabled: DATABASE_URL is off$/m);
    expect(demo.output).toContain(`Port ${port} is in use, so the demo listens at ${demo.url}/`);
    expect(Number(new URL(demo.url).port)).toBeGreaterThan(port);
    const answer = await fetch(`${demo.url}/api/v1/records`);
    expect(await answer.json()).toEqual({ workflows: [] });
    demo.type('kill-worker');
    await demo.until(/▸ records are disabled: DATABASE_URL is off$/m);
    const { children } = demo;
    demo.type('quit');
    expect(await demo.exited).toBe(0);
    await new Promise((resolve) => server.close(resolve));
    expect(children.filter(isRunning)).toEqual([]);
    expect(demo.output).toMatch(/Stopped: \d+ calls?, \d+ served, 0 cut, 0 given twice/);
    expect(demo.errors).toBe('');
  });

  test('starts although visitors use and drain agents before it is ready', async () => {
    const { server, port } = await listenSomewhere();
    await new Promise((resolve) => server.close(resolve));
    const demo = start({ DATABASE_URL: 'off' }, '--port', String(port), '--no-story');
    const isReady = () => /^[\d:]{8} {2}ready /m.test(demo.output);
    const post = async (path: string, body: object) => {
      const answer = await fetch(`http://127.0.0.1:${port}/api/v1${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      return answer.ok;
    };
    // From the first answer on: a visitor's call is held for two minutes.
    const taken = until(
      () => post('/allocate', { call_sid: 'early' }),
      'an early call has its agent',
      waitMs,
    );
    const drained = until(() => post('/drain', { pod_name: 'basic-0' }), 'an agent is drained', waitMs);
    await Promise.all([taken, drained]);
    await until(isReady, 'the demo is ready', waitMs);
    const live = await fetch(`http://127.0.0.1:${port}/api/v1/calls/early`);
    expect(live.status).toBe(200);
    demo.type('quit');
    expect(await demo.exited).toBe(0);
  });

  test('--seconds ends it, and --quiet shows no call', async () => {
    const demo = start({ DATABASE_URL: 'off' }, '--seconds', '2', '--quiet');
    expect(await demo.exited).toBe(0);
    expect(demo.output).toMatch(/^ {2}Open +http:/m);
    expect(demo.output).toMatch(/Stopped: [1-9]/);
    expect(demo.output).not.toContain('CA-1');
  });

  test('--headless prints one line of JSON when it is ready, and SIGQUIT stops it cleanly', async () => {
    const demo = start({ DEMO_SPEED: '4' }, '--headless', '--no-story');
    await demo.until(/\n/);
    const { ready, url, pid } = JSON.parse(demo.output);
    expect({ ready, pid }).toEqual({ ready: true, pid: demo.child.pid });
    const status = (await (await fetch(`${url}/api/v1/status`)).json()) as { pools: object };
    expect(Object.keys(status.pools).sort()).toEqual([
      'basic',
      'gold',
      'merchant:acme',
      'merchant:nova',
      'standard',
    ]);
    if (hasPostgres)
      await until(async () => (await fetch(`${url}/api/v1/records`)).ok, 'records answer', waitMs);
    const { children } = demo;
    demo.child.kill('SIGQUIT');
    expect(await demo.exited).toBe(0);
    expect(children.filter(isRunning)).toEqual([]);
    expect(demo.output.split('\n')).toHaveLength(2);
    expect(demo.errors).toBe('');
  });

  test('a killed demo leaves no process behind', async () => {
    const demo = start({}, '--headless', '--no-story');
    await demo.until(/\n/);
    // Three routers; two workers, the database and its guard.
    const all = hasPostgres ? 7 : 3;
    if (process.platform === 'linux')
      await until(() => demo.children.length === all, `it has ${all} children`, waitMs);
    const { children } = demo;
    await demo.end();
    await until(() => !children.some(isRunning), 'all its processes have exited');
  });

  test('--headless ends with the process that started it', async () => {
    const demo = start({ DATABASE_URL: 'off' }, '--headless', '--no-story');
    await demo.until(/\n/);
    const { children } = demo;
    demo.child.disconnect();
    expect(await demo.exited).toBe(0);
    expect(children.filter(isRunning)).toEqual([]);
  });

  test.each(['demo/parent-watch.js', 'demo/records/record-worker.js'])(
    'a child process ends when its demo exits before %s is loaded',
    async (file) => {
      const program = new URL(`../../dist/${file}`, import.meta.url).href;
      const child = spawn(
        process.execPath,
        ['--import', program, '--input-type=module', '-e', 'setInterval(() => {}, 1000)'],
        { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] },
      );
      const ended = new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)));
      child.disconnect();
      expect(await ended).toBe('SIGKILL');
    },
  );

  test('rejects an invalid DEMO_SPEED in one line', async () => {
    const demo = start({ DEMO_SPEED: 'fast' });
    expect(await demo.exited).toBe(2);
    expect(demo.errors).toContain('DEMO_SPEED must be a number from 0.1 to 20, got "fast"');
  });

  test('names REDIS_URL if that Redis cannot be reached', async () => {
    const demo = start({ REDIS_URL: 'redis://:secret@127.0.0.1:1', DATABASE_URL: 'off' });
    expect(await demo.exited).toBe(6);
    expect(demo.errors).toMatch(/^smart-router: cannot use Redis at redis:.*ECONNREFUSED.*; check REDIS_URL/);
    expect(demo.errors).not.toContain('secret');
  });
});

describe('smart-router demo without room for temporary files', () => {
  test('says which folder it cannot write to', { timeout: 2 * waitMs }, async () => {
    const demo = start({ DATABASE_URL: 'off', TMPDIR: '/nowhere' }, '--no-story');
    expect(await demo.exited).toBe(2);
    expect(demo.errors).toMatch(
      /^smart-router: cannot write to \/nowhere: ENOENT.*; free some space, or set TMPDIR to another folder\n$/,
    );
  });
});

describeTerminal('smart-router demo on a terminal', () => {
  test('shows that its port is in use, in the picture and after it; ? shows help', {
    timeout: 2 * waitMs,
  }, async () => {
    const { server, port } = await listenSomewhere();
    const terminal = await startOnTerminal({ path: binary }, ['demo', '--port', `${port}`, '--no-story'], {
      env: { DATABASE_URL: 'off' },
      columns: 100,
      patienceMs: waitMs,
    });
    await terminal.shows(`(port ${port} is in use)`);
    terminal.type('?');
    await terminal.shows('dated back 1 to 3 hours');
    terminal.type('x?');
    await terminal.shows('Any key closes this page');
    terminal.type('q');
    expect(await terminal.ended).toBe(0);
    expect(terminal.isAlternate()).toBe(false);
    expect(terminal.screen().join('\n')).toMatch(
      new RegExp(`Port ${port} is in use, so the demo listens at http:`),
    );
    await new Promise((resolve) => server.close(resolve));
  });

  test('with TERM=dumb prints lines and reads words', { timeout: 2 * waitMs }, async () => {
    const terminal = await startOnTerminal({ path: binary }, ['demo', '--port', '0', '--no-story'], {
      env: { DATABASE_URL: 'off', TERM: 'dumb' },
      patienceMs: waitMs,
    });
    await terminal.shows(/Open +http:/);
    terminal.type('help\n');
    await terminal.shows(/▸ commands: kill-leader/);
    terminal.type('quit\n');
    expect(await terminal.ended).toBe(0);
    expect(terminal.raw()).not.toContain('\u001b');
  });
});
