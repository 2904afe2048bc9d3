/** One running demo, with a key and at four times its speed, and the commands of a visitor. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findOnPath } from '../support/engines.js';
import { until } from '../support/until.js';
import { Demo, hasPostgres, isRunning, waitMs } from './support.js';

const noCurl = findOnPath('curl') === undefined;
const key = 'a-key-for-the-demo-test';
let demo: Demo;

beforeAll(() => {
  demo = new Demo({ DEMO_SPEED: '4', SMART_ROUTER_ADMIN_KEY: key }, '--no-story');
});
afterAll(() => demo.end());

// biome-ignore lint/suspicious/noExplicitAny: any answer of the API.
async function ask(path: string, body?: object): Promise<any> {
  const response = await fetch(`${demo.url}/api/v1${path}`, {
    method: body ? 'POST' : 'GET',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  return response.json();
}

/** A visitor's call; its agent keeps it for half a minute at this speed. */
const allocate = async (call_sid: string): Promise<string> => (await ask('/allocate', { call_sid })).pod_name;

describe('a running demo', { timeout: 2 * waitMs }, () => {
  test('shows its address and commands only when it answers', async () => {
    await demo.until(/^[\d:]{8} {2}ready /m);
    await demo.until(/^ {2}Try /m);
    const before = demo.output.slice(0, demo.output.search(/^[\d:]{8} {2}ready /m));
    expect(before).toContain('Starting');
    expect(before).not.toMatch(/http:|curl|^ {2}(Open|Try|Do) /m);
    expect((await fetch(`${demo.url}/health`)).status).toBe(200);
  });

  test.skipIf(noCurl)('its curl examples work as printed, with the variable of the key', async () => {
    await expect.poll(() => demo.output.match(/^ {4}curl .*$/gm) ?? [], { timeout: waitMs }).toHaveLength(5);
    const env = { ...process.env, SMART_ROUTER_ADMIN_KEY: key };
    for (const line of demo.output.match(/^ {4}curl .*$/gm) ?? []) {
      const { stdout } = await promisify(execFile)('sh', ['-c', line], { env });
      expect(JSON.parse(stdout), line).not.toHaveProperty('error');
    }
    await demo.until(/allocated my-call/);
    await demo.until(/released +my-call/);
    await demo.until(/drained +standard-3/);
    expect(demo.output).not.toContain(key);
    // The console page holds no data and needs no key; the API does.
    expect((await fetch(`${demo.url}/`)).status).toBe(200);
    expect((await fetch(`${demo.url}/api/v1/status`)).status).toBe(401);
  });

  test.skipIf(!hasPostgres)(
    'its routers list stuck and failed records, and an operator requeues them',
    async () => {
      await demo.until(/^[\d:]{8} {2}records {3}ready: every router serves \/api\/v1\/records$/m);
      await demo.until(/records +another-program left 3 pages in Processing/);
      const found = await ask('/records/page-curation/stuck');
      expect(found.total).toBeGreaterThanOrEqual(3);
      expect(found.records[0]).toMatchObject({ reason: 'unclaimed' });
      const reset = await ask('/records/page-curation/reset', { dry_run: false });
      expect(reset.requeued).toBeGreaterThanOrEqual(3);
      await demo.until(/records +3 abandoned records of another-program requeued$/m);

      const failed = async () =>
        (await ask('/records')).workflows.find(({ name }: { name: string }) => name === 'sitemap-import')
          .failed;
      await until(async () => (await failed()) > 0, 'a sitemap has failed', waitMs);
      const ids = Array.from({ length: 50 }, (_, i) => String(i + 1));
      expect((await ask('/records/sitemap-import/retry', { ids })).requeued).toBeGreaterThan(0);
    },
  );

  test('another router leads when the leader is killed, and calls are served in between', async () => {
    demo.type('kill-leader');
    const [killed] = await demo.until(/router +(router-\d) was killed while leading/);
    const killedAt = demo.output.search(/router-\d was killed while leading/);
    const [next] = await demo.until(
      new RegExp(`leader +(\\S+) leads, [\\d.]+ s after ${killed}; \\d+ calls? started in between`),
    );
    expect(next).not.toBe(killed);
    const between = demo.since(killedAt).split(/leader +\S+ leads, [\d.]+ s after/)[0];
    expect(between).toMatch(/(allocated|merchant|fallback) +CA-/);
    await demo.until(new RegExp(`router +${killed} is up again`));
  });

  test('a roll of the agents cuts no call', async () => {
    demo.type('roll');
    const [served] = await demo.until(
      /roll +all 20 agents run version 2 after [\d.]+ s; during the roll (\d+) calls? served, 0 cut/,
    );
    expect(Number(served)).toBeGreaterThan(0);
    const replaced = [
      ...demo.output.matchAll(/agent +(\S+) (?:finished .* and )?was replaced by version 2$/gm),
    ];
    expect(new Set(replaced.map(([, name]) => name)).size).toBe(20);
    expect(demo.output).toMatch(/agent +\S+ finished \d calls? in [\d.]+ s and was replaced/);
  });

  test('Redis is rebuilt after a flush, live calls included', async () => {
    const pod = await allocate('a-long-call');
    await demo.until(/a-long-call +[→↘]/);
    demo.type('lose-redis');
    const [adopted] = await demo.until(
      /redis +rebuilt after [\d.]+ s: 20 agents registered, (\d+) live calls? adopted/,
    );
    expect(Number(adopted)).toBeGreaterThan(0);
    await demo.until(new RegExp(`adopted +a-long-call +→ ${pod} `));
    expect(await allocate('a-long-call')).toBe(pod);
  });

  test.skipIf(!hasPostgres)(
    'the records of a killed worker are requeued and finished, none of them twice',
    async () => {
      await demo.until(/worker +worker-1 is up$/m);
      await demo.until(/worker +worker-2 is up$/m);
      const { worker, records } = await demo.killWorker();
      await demo.until(new RegExp(`records +\\d+ records? of ${worker} requeued after [\\d.]+ s$`, 'm'));
      const all = records === 1 ? `the record of ${worker}` : `all ${records} records of ${worker}`;
      await demo.until(
        new RegExp(`records +${all} finished by .*(worker|router)-\\d.*; finished twice so far: 0$`, 'm'),
      );
      await demo.until(new RegExp(`worker +${worker} is up again$`, 'm'));
    },
  );

  test('callers of the rush hour are held by Twilio, whose requests are signed, and then connected', async () => {
    demo.type('rush');
    const [held] = await demo.until(/hears +(CA-\d+) +… +“You are number \d+ in the queue\. All our agents/);
    await demo.until(new RegExp(`assigned +${held} +→`));
    await demo.until(new RegExp(`connected ${held} +→ \\S+ +by Twilio, after [\\d.]+ s on hold`));
    await demo.until(new RegExp(`released +${held} `));
  });

  test('every listed command does something', async () => {
    const [list = ''] = /Do {6}.*\n([\s\S]*?)\n {2}Try/.exec(demo.output)?.slice(1) ?? [];
    const words = list.split(',').map((word) => word.trim());
    expect(words).toContain('story');
    const { stdout: help } = await promisify(execFile)(process.execPath, [demo.binary, 'demo', '--help']);
    for (const word of words) expect(help).toContain(word);
    // Tested above, or the end of the demo.
    const others = words.filter((word) => !['roll', 'kill-leader', 'kill-worker', 'quit'].includes(word));
    for (const word of [...others, 'api', 'story']) {
      const mark = demo.output.length;
      demo.type(word);
      await expect.poll(() => demo.since(mark), { timeout: waitMs, interval: 20 }).toMatch(/ {2}▸ /);
    }
    await demo.until(/▸ story on$[\s\S]*▸ story off/m);
    // The flush among the commands took the merchants too: each router has nova's chain again with its next refresh.
    const exhausted = /no pods +CA-\d+ +× +no free pod in nova’s own pool$/m;
    const exhaust = () => {
      if (!exhausted.test(demo.output)) demo.type('exhaust');
      return demo.output;
    };
    await expect.poll(exhaust, { timeout: waitMs, interval: 2000 }).toMatch(exhausted);
    demo.type('dance');
    await demo.until(/▸ unknown command dance; commands: kill-leader, .*quit/);
  });

  test('quit exits with 0 and leaves no process; no call was cut or given twice', async () => {
    const { children } = demo;
    demo.type('quit');
    expect(await demo.exited).toBe(0);
    expect(children.filter(isRunning)).toEqual([]);
    expect(demo.output).toMatch(/Stopped: \d+ calls, \d+ served, 0 cut, 0 given twice,/);
    if (hasPostgres)
      expect(demo.output).toMatch(
        /Records: \d+ sitemaps? imported, \d+ pages curated, \d+ failed, 0 finished twice, [1-9]\d* requeued from \d+ killed workers?\./,
      );
    expect(demo.output).not.toMatch(/demo error| cut {7}/);
    expect(demo.errors).toBe('');
  });
});
