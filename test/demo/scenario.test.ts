/** The story at eight times its pace, from its beginning to the end of its opening. */
import { afterEach, describe, expect, test } from 'vitest';
import { Demo, hasPostgres, isRunning, listenSomewhere, waitMs } from './support.js';

const recordParts = [
  /^[\d:]{8} {2}site +\S+\.example has appeared: a sitemap, \d+ pages$/m,
  /^[\d:]{8} {2}worker +worker-\d was killed with \d+ records?$/m,
  /^[\d:]{8} {2}worker +worker-\d is up again$/m,
];

let demo: Demo | undefined;
afterEach(() => demo?.end());

describe('the story of the demo', { timeout: 2 * waitMs }, () => {
  test('tells its story without being asked, and ends with 0 on Ctrl-C', async () => {
    // A database of its user's, which it must leave alone.
    const { server, port } = await listenSomewhere();
    let visitors = 0;
    server.on('connection', () => {
      visitors += 1;
    });
    demo = new Demo({ DEMO_SPEED: '8', DATABASE_URL: `postgres://somebody@127.0.0.1:${port}/theirs` });
    for (const part of [
      /^[\d:]{8} {2}leader +router-\d leads, [\d.]+ s after the start$/m,
      /^[\d:]{8} {2}ready +http:\S+ answers: 3 routers, 20 agents$/m,
      /^[\d:]{8} {2}allocated CA-\d+ +→ gold-\d/m,
      /^[\d:]{8} {2}merchant +CA-\d+ +→ acme-\d/m,
      /^[\d:]{8} {2}fallback +CA-\d+ +↘ standard-\d +nothing free in gold/m,
      /^[\d:]{8} {2}agent +\S+-\d crashed and took \d calls? with it$/m,
      /^[\d:]{8} {2}lost +CA-\d+ +× \S+-\d +its container (has ended|was restarted)/m,
      /^[\d:]{8} {2}router +router-\d was killed while leading$/m,
      /^[\d:]{8} {2}leader +router-\d leads, [\d.]+ s after router-\d; meanwhile \d+ calls? began$/m,
      /^[\d:]{8} {2}draining +\S+-\d +no new calls; its call goes on/m,
      /^[\d:]{8} {2}roll +all 20 agents run version 2 after [\d.]+ s; meanwhile \d+ calls? served, 0 cut$/m,
      /^[\d:]{8} {2}redis +everything is back after [\d.]+ s: \d+ agents registered, \d+ live calls? adopted$/m,
      /^[\d:]{8} {2}recovered CA-\d+ +↺ \S+-\d +zombie: /m,
      /^[\d:]{8} {2}no pods +CA-\d+ +× +nothing free in nova’s own pool$/m,
      /^[\d:]{8} {2}agent +\S+-\d has no call any more: safe to stop$/m,
      ...(hasPostgres ? recordParts : []),
    ]) {
      await demo.until(part);
    }
    const { children } = demo;
    demo.child.kill('SIGINT');
    expect(await demo.exited).toBe(0);
    expect(demo.output).toMatch(/ {2}Stopped: \d+ calls, \d+ served, 0 cut, 0 given twice,.*\.\n/);
    expect(demo.errors).toBe('');
    expect(demo.output).not.toMatch(/stumbled|\u001b\[/);
    expect(children.filter(isRunning)).toEqual([]);
    await expect(fetch(`${demo.url}/health`)).rejects.toThrow();
    await new Promise((resolve) => server.close(resolve));
    expect(visitors).toBe(0);
  });
});
