/** The opening of the scenario at eight times its speed; in the quick set up to the new leader. */
import { afterEach, describe, expect, test } from 'vitest';
import { isDeep } from '../support/sets.js';
import { Demo, hasPostgres, isRunning, listenSomewhere, waitMs } from './support.js';

const site = /^[\d:]{8} {2}site +\S+\.example published: a sitemap, \d+ pages$/m;
/** What follows the new leader. */
const secondHalf = [
  /^[\d:]{8} {2}draining +\S+-\d +no new calls; 1 call continues/m,
  /^[\d:]{8} {2}roll +all 20 agents run version 2 after [\d.]+ s; during the roll \d+ calls? served, 0 cut$/m,
  /^[\d:]{8} {2}redis +rebuilt after [\d.]+ s: \d+ agents registered, \d+ live calls? adopted$/m,
  /^[\d:]{8} {2}recovered CA-\d+ +↺ \S+-\d +zombie: /m,
  /^[\d:]{8} {2}no pods +CA-\d+ +× +no free pod in nova’s own pool$/m,
  /^[\d:]{8} {2}agent +\S+-\d has no calls left: safe to stop$/m,
];
const recordParts = [
  /^[\d:]{8} {2}worker +worker-\d was killed with \d+ records?$/m,
  /^[\d:]{8} {2}worker +worker-\d is up again$/m,
];

let demo: Demo | undefined;
afterEach(() => demo?.end());

describe('the scenario of the demo', { timeout: 2 * waitMs }, () => {
  test('runs its opening, and exits with 0 on Ctrl-C', async () => {
    // A database of the user, which the demo must not touch.
    const { server, port } = await listenSomewhere();
    let connections = 0;
    server.on('connection', () => {
      connections += 1;
    });
    demo = new Demo({ DEMO_SPEED: '8', DATABASE_URL: `postgres://user@127.0.0.1:${port}/production` });
    for (const part of [
      /^[\d:]{8} {2}leader +router-\d leads, [\d.]+ s after the start$/m,
      /^[\d:]{8} {2}ready +http:\S+ answers: 3 routers, 20 agents$/m,
      /^[\d:]{8} {2}allocated CA-\d+ +→ gold-\d/m,
      /^[\d:]{8} {2}merchant +CA-\d+ +→ acme-\d/m,
      /^[\d:]{8} {2}fallback +CA-\d+ +↘ standard-\d +no free pod in gold/m,
      /^[\d:]{8} {2}waiting +CA-\d+ +… +all busy: on hold, place \d+ in the queue$/m,
      /^[\d:]{8} {2}hears +CA-\d+ +… +“You are number \d+ in the queue\. All our agents are busy\. Please hold the line\.”$/m,
      /^[\d:]{8} {2}assigned +CA-\d+ +→ \S+-\d +\S+, after [\d.]+ s on hold$/m,
      /^[\d:]{8} {2}connected CA-\d+ +→ \S+-\d +by Twilio, after [\d.]+ s on hold$/m,
      /^[\d:]{8} {2}agent +\S+-\d crashed; \d calls? lost$/m,
      /^[\d:]{8} {2}lost +CA-\d+ +× \S+-\d +its container (has ended|was restarted)/m,
      /^[\d:]{8} {2}router +router-\d was killed while leading$/m,
      /^[\d:]{8} {2}leader +router-\d leads, [\d.]+ s after router-\d; \d+ calls? started in between$/m,
      ...(hasPostgres ? [site] : []),
      ...(isDeep ? secondHalf : []),
      ...(isDeep && hasPostgres ? recordParts : []),
    ]) {
      await demo.until(part);
    }
    const { children } = demo;
    demo.child.kill('SIGINT');
    expect(await demo.exited).toBe(0);
    expect(demo.output).toMatch(/ {2}Stopped: \d+ calls, \d+ served, 0 cut, 0 given twice,.*\.\n/);
    expect(demo.errors).toBe('');
    expect(demo.output).not.toMatch(/demo error|\u001b\[/);
    expect(children.filter(isRunning)).toEqual([]);
    await expect(fetch(`${demo.url}/health`)).rejects.toThrow();
    await new Promise((resolve) => server.close(resolve));
    expect(connections).toBe(0);
  });
});
