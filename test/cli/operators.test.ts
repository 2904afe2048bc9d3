import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { documentOf, runner, start, startScripted, startTestRouter, useBinary, useStore } from './support.js';

const binary = useBinary();
const store = useStore();
let router: RunningRouter;
const run = runner(() => router.url);

beforeEach(async () => {
  router = await startTestRouter(await store.emptied());
});
afterEach(() => router.stop());

/** Calls are made inside: a child process for each would take longer than the test. */
async function allocate(...sids: string[]): Promise<number[]> {
  const fences: number[] = [];
  for (const callSid of sids) {
    const call = { callSid, merchantId: '', provider: 'twilio', flow: 'v2', template: 't' };
    fences.push((await router.context.router.allocate(call)).fence);
  }
  return fences;
}

describe('status', () => {
  it('shows pools with their use, the leader, the loops and the store', async () => {
    await allocate('CA1', 'CA2', 'CA3');
    const { code, stdout, stderr } = await run('status');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^store {3}up$/m);
    expect(stdout).toMatch(/^leader {2}.+ \(this router\)$/m);
    expect(stdout).toMatch(/^gold +exclusive +2 +0 +2 +2 {2}#{10} 100%$/m);
    expect(stdout).toMatch(/^basic +shared +1 +1 +1 +3 {2}###-{7} {2}33%$/m);
    expect(stdout).toMatch(/^merchant:vip +exclusive +1 +1 +0 +1 {2}-{10} {3}0%$/m);
    expect(stdout).toMatch(/^reconcile +running +\d+s ago +\d+ +0 {2}/m);
    expect(stdout).not.toContain('\u001b[');
  });

  it('prints one JSON document with --json', async () => {
    const document = documentOf(await run('status --json'));
    expect(document).toMatchObject({ success: true, status: 'up', is_leader: true, active_calls: 0 });
    expect(document).toHaveProperty(['pools', 'gold', 'capacity'], 2);
  });

  it('warns when TIER_CONFIG of the router is not what the store holds', async () => {
    await run(['tiers', 'set', '{"gold":2,"silver":1}']);
    const { code, stderr } = await run('status');
    expect(code).toBe(0);
    expect(stderr).toContain('warning: TIER_CONFIG of this router differs from the store');
  });
});

describe('pods', () => {
  it('lists pods sorted by pool and name, with state, load and lease', async () => {
    await allocate('CA1', 'CA2', 'CA3', 'CA4');
    const { stdout } = await run('pods');
    const names = stdout.split('\n').map((line) => line.split(' ')[0]);
    expect(names.slice(0, 5)).toEqual(['POD', 'pod-c', 'pod-a', 'pod-b', 'vip-1']);
    expect(stdout).toMatch(/^pod-c +basic +busy +2\/3 {2}1[45]m \d+s left +CA\d and 1 more$/m);
    expect(stdout).toMatch(/^vip-1 +merchant:vip +free +0\/1 {2}-$/m);
    expect(stdout).toContain('\n4 pods\n');
  });

  it('filters by pool, by state and by number', async () => {
    await allocate('CA1');
    await router.context.router.drain('pod-c', 0);
    const names = async (args: string) => {
      const { pods, total } = documentOf(await run(`pods --json ${args}`)) as {
        pods: { pod_name: string; state: string }[];
        total: number;
      };
      return [...pods.map(({ pod_name, state }) => `${pod_name} ${state}`), total];
    };
    expect(await names('--state draining')).toEqual(['pod-c draining', 1]);
    expect(await names('--state busy')).toEqual([expect.stringMatching(/^pod-[ab] busy$/), 1]);
    expect(await names('--pool vip')).toEqual(['vip-1 free', 1]);
    expect(await names('--pool pool:gold --limit 1')).toEqual([expect.stringMatching(/^pod-a /), 2]);
    expect((await run('pods --limit 1')).stdout).toContain('1 of 4 pods shown');
    expect((await run('pods --state blocked')).stdout).toBe('no pods\n');
  });

  it('shows one pod with its calls, and exits 4 for an unknown pod or pool', async () => {
    await allocate('CA1');
    const { pod_name } = documentOf(await run('calls CA1 --json'));
    const { stdout } = await run(`pods ${pod_name}`);
    expect(stdout).toMatch(/^state {2}busy$/m);
    expect(stdout).toMatch(/^call {3}CA1, lease 1[45]m \d+s left$/m);
    expect(documentOf(await run(`pods ${pod_name} --json`))).toMatchObject({
      success: true,
      state: 'busy',
      calls: ['CA1'],
    });
    expect(await run('pods nosuch')).toEqual({
      code: 4,
      stdout: '',
      stderr: 'smart-router: no pod "nosuch": it is not registered\n',
    });
    const unknown = await run('pods --pool silver');
    expect(unknown).toMatchObject({
      code: 4,
      stderr: 'smart-router: no pool "silver": the pools are basic, gold, merchant:vip\n',
    });
  });
});

describe('calls', () => {
  it('lists calls oldest first with age and lease, and reports an empty list', async () => {
    expect((await run('calls')).stdout).toBe('no live calls\n');
    await allocate('CA-z', 'CA-a', 'CA-m');
    const { stdout } = await run('calls');
    expect(stdout.split('\n').map((line) => line.split(' ')[0])).toEqual([
      'CALL',
      'CA-z',
      'CA-a',
      'CA-m',
      '',
      '3',
      '',
    ]);
    expect(stdout).toMatch(/^CA-z +pod-[ab] +pool:gold +- +\d+s {2}1[45]m \d+s left$/m);
    expect(documentOf(await run('calls --json --pool gold --limit 1'))).toMatchObject({
      success: true,
      calls: [{ call_sid: 'CA-z' }],
      total: 2,
    });
  });

  it('shows one call, and exits 4 for one that is not live', async () => {
    const [fence] = await allocate('CA 1/ü');
    const { stdout } = await run(['calls', 'CA 1/ü']);
    expect(stdout).toContain('call      CA 1/ü\n');
    expect(stdout).toContain(`fence     ${fence}\n`);
    const unknown = await run('calls CA404');
    expect(unknown).toMatchObject({ code: 4, stdout: '' });
    expect(unknown.stderr).toMatch(/^smart-router: no live call and no event with this id: .*\n$/);
    expect(documentOf(await run('calls CA404 --json'))).toMatchObject({
      success: false,
      code: 'call_not_found',
    });
  });

  it('names `events` if the router is too busy to read the timeline of a call', async () => {
    const busy = await startScripted(({ url = '' }) =>
      url.endsWith('/timeline')
        ? { status: 503, json: { error: 'the router is overloaded', code: 'overloaded' } }
        : { status: 404, json: { error: 'no live call: it has ended', code: 'call_not_found' } },
    );
    const { code, stderr } = await run(['calls', "it's 1", '--url', busy.url]);
    await busy.stop();
    expect(code).toBe(4);
    expect(stderr).toBe(
      "smart-router: no live call: it has ended; `smart-router events --call 'it'\\''s 1'` shows its kept events\n",
    );
  });

  it('shows pod, times and reason of an ended call, with exit code 4', async () => {
    await allocate('CA-gone');
    await run('release CA-gone');
    const { code, stdout, stderr } = await run('calls CA-gone');
    expect(code).toBe(4);
    expect(stdout).toMatch(/^call +CA-gone\npod +pod-[abc]\npool +pool:\w+\nbegan +\d{4}-.*Z\n/);
    expect(stdout).toMatch(/^ended +released \d+s ago, after \d+s$/m);
    expect(stdout).toMatch(
      /^\S+Z {2}call_allocated +CA-gone pod-[abc] pool:\w+ .*\n\S+Z {2}call_released +CA-gone /m,
    );
    expect(stderr).toMatch(/^smart-router: call "CA-gone" is not live: it was released \d+s ago\n$/);
    expect(documentOf(await run('calls CA-gone --json'))).toMatchObject({
      success: false,
      code: 'call_not_found',
      call_sid: 'CA-gone',
      live: null,
      is_complete: true,
      events: [{ type: 'call_allocated' }, { type: 'call_released' }],
    });
  });
});

describe('explain', () => {
  const fill = () => allocate('CA1', 'CA2', 'CA3', 'CA4', 'CA5');

  it('starts with the answer, then says why for every pool of the chain', async () => {
    const { code, stdout } = await run('explain');
    expect(code).toBe(0);
    expect(stdout.split('\n').map((line) => line.replace(/pod-[abc]/, 'POD').replace(/ +/g, ' '))).toEqual([
      'A new call would get a pod of pool:gold, for example POD.',
      '',
      'POOL TYPE PODS FREE BUSY BLOCKED RESULT WHY',
      'pool:gold exclusive 2 2 0 0 taken a free pod',
      'pool:basic shared 1 1 0 0 not tried pool:gold has a pod',
      '',
    ]);
    expect(documentOf(await run('explain --json'))).toMatchObject({ success: true, would: 'allocate' });
  });

  it('says what would free a place, with the limit and the queue of the merchant', async () => {
    await fill();
    await router.context.settings.setMerchant('acme', { max_calls: 3, hold: { max_wait: '60s' } }, 'test');
    const { stdout } = await run('explain --merchant acme');
    expect(stdout).toMatch(
      /^A new call of acme would wait at place 1 of its queue: no pod of its chain is free\.\n\n/,
    );
    expect(stdout).toMatch(
      /^pool:gold +exclusive +2 +0 +2 +0 +passed over +no pod can take a call: 2 busy$/m,
    );
    expect(stdout).toContain('\nlimit: 0 of 3 calls (max_calls)\nqueue: 0 of 1000 calls wait in this queue');
    expect(stdout).toMatch(
      /^next:\n {2}lease of CA1 on pod-[abc] expires in 15 min, unless it is renewed\n/m,
    );
    expect((await run('explain --merchant acme --no-wait')).stdout).toMatch(
      /^A new call of acme would be refused \(no_pods\)/,
    );
  });

  it('tells what happened to a past call, and what would happen now', async () => {
    await fill();
    await allocate('CA6').catch(() => undefined);
    const { code, stdout } = await run('explain --call CA6');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Call CA6 was refused \(no_pods\), \d+s ago\.\n\nit saw, at \S+Z:\n/);
    expect(stdout).toContain(
      '\n  pool:gold: 2 pods, 2 calls, 0 blocked\n  pool:basic: 1 pod, 3 calls, 0 blocked\n',
    );
    expect(stdout).toMatch(/^\S+Z {2}no_pods +CA6 /m);
    expect(stdout).toMatch(/^now: A new call would be refused \(no_pods\)/m);
    expect(documentOf(await run('explain --call CA6 --json'))).toMatchObject({
      events: [{ type: 'no_pods' }],
      now: { would: 'refuse', code: 'no_pods' },
    });
    expect((await run('explain --call CA1')).stdout).toMatch(
      /^Call CA1 got pod pod-[abc] of pool:gold, \d+s ago\.\n/,
    );
    expect((await run('explain --call CA404')).code).toBe(4);
    expect((await run('explain --call CA1 --merchant acme')).code).toBe(2);
  });

  it('says that a call was adopted by a report, not that it asked for a pod', async () => {
    await router.context.router.report('pod-a', ['CA7']);
    expect((await run('explain --call CA7')).stdout).toMatch(
      /^Call CA7 was adopted: pod pod-a of pool:\w+ reported it, \d+s ago\.\n/,
    );
  });
});

describe('allocate and release', () => {
  it('allocates a pod, the same one again, and releases it', async () => {
    const first = documentOf(await run('allocate CA1 --json --provider plivo --flow v1 --template hello'));
    expect(first).toMatchObject({ success: true, was_existing: false, source_pool: 'pool:gold' });
    expect(first.ws_url).toMatch(/\/plivo\/callback\/hello$/);
    const again = await run('allocate CA1');
    expect(again.stdout).toContain(`pod     ${first.pod_name} (already allocated)\n`);
    const released = await run('release CA1');
    expect(released).toMatchObject({ code: 0, stderr: '' });
    expect(released.stdout).toBe(`call CA1 ended; pod ${first.pod_name} is available again in pool:gold\n`);
    expect(await run('release CA1')).toMatchObject({ code: 4, stdout: '' });
  });

  it('follows the chain of the merchant', async () => {
    await run('merchants set acme --pool vip');
    expect(documentOf(await run('allocate CA1 --merchant acme --json'))).toMatchObject({
      source_pool: 'merchant:vip',
    });
  });

  it('exits 3 when no pod is free', async () => {
    await allocate('CA1', 'CA2', 'CA3', 'CA4', 'CA5');
    expect(await run('allocate CA6')).toMatchObject({
      code: 3,
      stdout: '',
      stderr: 'smart-router: no free pod for this call: tried pool:gold, pool:basic\n',
    });
    expect(documentOf(await run('allocate CA6 --json'))).toMatchObject({ success: false, code: 'no_pods' });
  });

  it('exits 5 for a stale fence and does not end the call', async () => {
    const [fence = 0] = await allocate('CA1');
    const stale = await run(`release CA1 --fence ${fence - 1} --json`);
    expect(stale).toMatchObject({ code: 5, stderr: '' });
    expect(documentOf(stale)).toMatchObject({ success: false, code: 'stale_fence' });
    expect(await run(`release CA1 --fence ${fence}`)).toMatchObject({ code: 0 });
  });
});

describe('drain and undrain', () => {
  it('drains and undrains, with the message of the router', async () => {
    await allocate('CA1');
    const drained = await run('drain pod-c');
    const stdout = expect.stringMatching(
      /^Pod pod-c is draining with no active calls\.\nThe drain expires at [-\d]+T[:.\d]+Z \(in (6m|5m\d+s)\)\.\n$/,
    );
    expect(drained).toEqual({ code: 0, stdout, stderr: '' });
    expect(documentOf(await run('undrain pod-c --json'))).toMatchObject({ success: true, pod_name: 'pod-c' });
    expect(await run('drain nosuch')).toMatchObject({ code: 4 });
    expect(await run('undrain nosuch')).toMatchObject({ code: 4 });
  });

  it('in a replaced pod, changes nothing of the new pod and exits 5', async () => {
    const { connection } = router.context.store;
    await connection.command('test', (client) => client.hset('voice:pod:pod-c', 'uid', 'new'));
    const env = { SMART_ROUTER_URL: router.url, POD_NAME: 'pod-c', POD_UID: 'old' };
    for (const command of ['drain', 'drain --wait 1s', 'undrain']) {
      const [name = '', ...options] = command.split(' ');
      const { code, stderr } = await start(binary, [name, 'pod-c', ...options], { env }).ended;
      expect({ command, code }).toEqual({ command, code: 5 });
      expect(stderr).toContain('pod "pod-c" was replaced: it is registered with another uid');
    }
    expect(await router.context.store.pod('pod-c')).toMatchObject({ blockedBy: '' });
    const other = start(binary, ['drain', 'pod-c'], { env: { ...env, POD_NAME: 'smart-router-0' } });
    expect(await other.ended).toMatchObject({ code: 0 });
  });

  it('--wait answers when the last call has ended', async () => {
    await allocate('CA1', 'CA2');
    const { podName } = await router.context.store.call('CA1');
    const waiting = start(binary, ['drain', podName, '--wait', '20s'], {
      env: { SMART_ROUTER_URL: router.url },
    });
    await waiting.shows('1 call left');
    await router.context.router.release('CA1');
    const { code, stdout } = await waiting.ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(
      new RegExp(`^Pod ${podName} is draining and has no calls \\(waited \\d+s\\)\\.$`, 'm'),
    );
  });

  it('--wait exits 7 when the time is up with calls still live, and the pod still drains', async () => {
    await allocate('CA1');
    const { podName } = await router.context.store.call('CA1');
    const ended = await run(`drain ${podName} --wait 500ms --json`);
    expect(ended).toMatchObject({ code: 7, stderr: '' });
    expect(documentOf(ended)).toMatchObject({
      success: false,
      code: 'calls_still_live',
      active_calls: 1,
      pod_name: podName,
    });
    const shown = await run(`drain ${podName} --wait 500ms`);
    expect(shown.stderr).toContain(`1 call still live on ${podName}`);
    expect(shown.stderr).toContain(`undrain ${podName}`);
    expect(await router.context.store.pod(podName)).toMatchObject({ blockedBy: 'draining' });
  });

  it('Ctrl-C ends the wait, reports that the drain continues, and exits 130', async () => {
    await allocate('CA1');
    const { podName } = await router.context.store.call('CA1');
    const waiting = start(binary, ['drain', podName, '--wait'], { env: { SMART_ROUTER_URL: router.url } });
    await waiting.shows('1 call left');
    waiting.child.kill('SIGINT');
    const { code, stdout, stderr } = await waiting.ended;
    expect({ code, stdout }).toEqual({ code: 130, stdout: '' });
    expect(stderr).toMatch(
      /stopped waiting for pod-[ab] with 1 live call\. The drain continues \(\d+m \d+s left\)/,
    );
    expect(await router.context.store.pod(podName)).toMatchObject({ blockedBy: 'draining' });
  });
});

describe('tiers', () => {
  it('shows the tiers in the order of the chain', async () => {
    const { stdout } = await run('tiers get');
    expect(stdout.split('\n').map((line) => line.split(' ')[0])).toEqual([
      'TIER',
      'gold',
      'basic',
      'vip',
      '',
      'chain',
      'version',
      '',
    ]);
    expect(stdout).toMatch(/^vip +exclusive +1 +1 +- {2}merchant:vip$/m);
  });

  it('takes JSON, a file and standard input, and counts versions', async () => {
    expect(documentOf(await run(['tiers', 'set', '--json', '{"gold":3,"basic":1,"vip":1}']))).toMatchObject({
      success: true,
      version: 2,
      default_chain: ['basic', 'gold', 'vip'],
    });
    const file = join(tmpdir(), `tiers-${process.pid}.json`);
    writeFileSync(file, '\ufeff{"gold":4,"basic":1,"vip":1}');
    expect(documentOf(await run(['tiers', 'set', file, '--json']))).toMatchObject({ version: 3 });
    const piped = await run('tiers set - --json', { input: '{"gold":5,"basic":1,"vip":1}' });
    expect(documentOf(piped)).toMatchObject({ version: 4 });
  });

  it('accepts the output of get, and exits 5 if it is outdated', async () => {
    const read = await run('tiers get --json');
    const edited = read.stdout.replace('"target": 2', '"target": 7');
    expect(await run('tiers set -', { input: edited })).toMatchObject({ code: 0 });
    const late = await run('tiers set - --json', { input: edited });
    expect(late.code).toBe(5);
    expect(documentOf(late)).toMatchObject({ success: false, code: 'version_conflict' });
    expect(await run('tiers set - --force', { input: edited })).toMatchObject({ code: 0 });
    expect(await run(['tiers', 'set', '{"gold":1,"basic":1}', '--version', '1'])).toMatchObject({ code: 5 });
  });

  it('keeps the rules for waiting calls in the output of get', async () => {
    const hold = { max_wait: '1m', max_waiting: 500 };
    await run(['tiers', 'set', JSON.stringify({ tiers: { gold: { target: 2 } }, hold })]);
    const read = await run('tiers get --json');
    expect(documentOf(read)).toMatchObject({ hold });
    const changed = await run('tiers set - --json', { input: read.stdout.replace('500', '501') });
    expect(documentOf(changed)).toMatchObject({ hold: { max_waiting: 501 } });
    expect(documentOf(await run(['tiers', 'set', '{"gold":2}', '--json']))).not.toHaveProperty('hold');
  });

  it('reports all problems together, without a request', async () => {
    const wrong = ['tiers', 'set', '{"gold":{"type":"big","target":-1},"a b":{}}'];
    const { code, stderr } = await run([...wrong, '--url', 'http://127.0.0.1:1']);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^smart-router: invalid tier configuration:\n( {2}the argument: .*\n){3}$/);
    const document = documentOf(await run([...wrong, '--json']));
    expect(document).toMatchObject({ success: false, code: 'usage' });
    expect(document.problems).toHaveLength(3);
  });

  it('exits 5 with the reason while a tier cannot be changed', async () => {
    await allocate('CA1', 'CA2', 'CA3', 'CA4');
    const exclusive = await run(['tiers', 'set', '{"gold":2,"basic":1,"vip":1}', '--json']);
    expect(exclusive.code).toBe(5);
    expect(documentOf(exclusive)).toMatchObject({ code: 'tier_conflict' });
  });
});

describe('merchants', () => {
  it('sets by options or JSON, lists, shows and deletes', async () => {
    expect((await run('merchants list')).stdout).toContain('no merchants are configured');
    const set = await run('merchants set acme --tier basic --pool vip --fallback merchant:vip,basic,nosuch');
    expect(set.code).toBe(0);
    expect(set.stdout).toContain('chain     merchant:vip > pool:basic\n');
    expect(set.stderr).toBe('warning: acme: nosuch is skipped: no such tier\n');
    expect(await run(['merchants', 'set', 'umbrella', '{"tier":"basic"}'])).toMatchObject({ code: 0 });
    const { stdout } = await run('merchants list');
    expect(stdout).toMatch(/^umbrella +basic +- +- +pool:basic$/m);
    expect(documentOf(await run('merchants list --json'))).toMatchObject({
      success: true,
      merchants: [{ merchant_id: 'acme', pool: 'vip' }, { merchant_id: 'umbrella' }],
    });
    expect(documentOf(await run('merchants get umbrella --json'))).toMatchObject({
      success: true,
      tier: 'basic',
    });
    expect((await run('merchants delete umbrella')).stdout).toContain('merchant umbrella deleted');
    expect(await run('merchants delete umbrella')).toMatchObject({ code: 4, stdout: '' });
    expect(await run('merchants get umbrella')).toMatchObject({ code: 4, stdout: '' });
  });

  it('rejects invalid input with every problem, and an empty command', async () => {
    const wrong = await run(['merchants', 'set', 'acme', '--tier', 'a b', '--fallback', ',']);
    expect(wrong.code).toBe(2);
    expect(wrong.stderr.trim().split('\n')).toHaveLength(4);
    expect(await run('merchants set acme')).toMatchObject({ code: 2, stdout: '' });
    expect(await run(['merchants', 'set', 'acme', '{}', '--tier', 'gold'])).toMatchObject({ code: 2 });
    expect(await run(['merchants', 'set', 'a b', '{}'])).toMatchObject({ code: 2 });
  });
});
