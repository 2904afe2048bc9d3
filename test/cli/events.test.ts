import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { RouterApi } from '../../src/cli/api.js';
import { eventLine } from '../../src/cli/commands/events.js';
import { follow, isAfter } from '../../src/cli/event-stream.js';
import { run as runHere } from '../../src/cli/index.js';
import type { RouterEvent } from '../../src/cli/replies.js';
import { systemClock } from '../../src/clock.js';
import type { RunningRouter } from '../../src/main/router.js';
import { withoutColours } from '../../src/terminal/text.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { capture } from './capture.js';
import {
  allocateOn,
  documentOf,
  runner,
  start,
  startScripted,
  startTestRouter,
  useBinary,
  useStore,
} from './support.js';

const binary = useBinary();
const store = useStore();

describe('events', () => {
  let router: RunningRouter;
  beforeEach(async () => {
    router = await startTestRouter(await store.emptied());
  });
  afterEach(() => router.stop());

  const run = runner(() => router.url);
  const allocate = (sid: string) => allocateOn(router, sid);
  const release = (sid: string) => router.context.router.release(sid);
  const eventsOf = (document: Record<string, unknown>) => document.events as RouterEvent[];
  const kept = async () => (await router.context.feed.replay('')).map(({ id }) => id);

  it('lists kept events, oldest first, by time, type, call and pod', async () => {
    const { podName } = await allocate('CA1');
    await allocate('CA2');
    await release('CA1');
    const { code, stdout } = await run('events --since 10m');
    expect(code).toBe(0);
    expect(stdout).toMatch(/call_allocated +CA1 pod-[\s\S]*call_released +CA1[\s\S]*\n\n\d+ events\n$/);
    expect(stdout.split('\n')[0]).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z {2}\w+/);
    const ofCall = eventsOf(documentOf(await run('events --call CA1 --json')));
    expect(ofCall.map(({ type }) => type)).toEqual(['call_allocated', 'call_released']);
    const ofType = eventsOf(documentOf(await run('events --type call_released,no_pods --json')));
    expect(ofType.map(({ call: sid }) => sid)).toEqual(['CA1']);
    const ofPod = eventsOf(documentOf(await run(`events --pod ${podName} --json`)));
    expect(new Set(ofPod.map(({ pod }) => pod))).toEqual(new Set([podName]));
    const [first] = ofCall as [RouterEvent];
    const after = eventsOf(documentOf(await run(`events --since ${first.id} --call CA1 --json`)));
    expect(after.map(({ type }) => type)).toEqual(['call_released']);
    const limited = eventsOf(documentOf(await run('events --limit 1 --json')));
    expect(limited.map(({ id }) => id)).toEqual((await kept()).slice(-1));
    const all = eventsOf(documentOf(await run('events --since 0 --json')));
    expect(all.map(({ id }) => id)).toEqual(await kept());
    expect((await run('events --call unknown')).stdout).toBe('no events\n');
  });

  it('follows without losing or repeating an event across broken connections', async () => {
    const proxy = await tcpProxy(Number(new URL(router.url).port));
    const url = `http://127.0.0.1:${proxy.port}`;
    const before = (await kept()).length;
    const following = start(binary, ['events', '--follow', '--json', '--url', url]);
    await until(() => router.context.feed.listeners > 0, 'it listens');
    for (let round = 0; round < 6; round++) {
      await allocate(`CA${round}`);
      if (round === 1 || round === 3) proxy.reset();
      if (round === 2) {
        await following.shows('"CA2"');
        await proxy.down();
      }
      await release(`CA${round}`);
      if (round === 2) await proxy.up();
    }
    await allocate('CA-last');
    await following.shows('"CA-last"');
    following.child.kill('SIGINT');
    const { code, stdout, stderr } = await following.ended;
    expect(code).toBe(0);
    const ids = stdout
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as RouterEvent).id);
    // What came with the second in which it began may be shown too, where the router has no search.
    const all = await kept();
    expect(ids.slice(-(all.length - before))).toEqual(all.slice(before));
    expect(ids).toEqual(all.slice(-ids.length));
    expect(stderr).toContain('Retrying');
    expect(stderr).toContain('reconnected');
  });

  it('follows only events that match the filter, and exits 0 after SIGTERM', async () => {
    const following = start(binary, ['events', '-f', '--type', 'call_released', '--url', router.url]);
    await until(() => router.context.feed.listeners > 0, 'it listens');
    await allocate('CA1');
    await release('CA1');
    await following.shows('call_released');
    following.child.kill('SIGTERM');
    const { code, stdout } = await following.ended;
    expect(code).toBe(0);
    expect(stdout).not.toContain('call_allocated');
  });

  it('has colours on a terminal, and none with NO_COLOR', async () => {
    await allocate('CA1');
    const args = ['events', '--call', 'CA1', '--url', router.url];
    const [screen, bare] = [capture({ tty: true }), capture({ tty: true })];
    await runHere(args, {}, { streams: screen.streams });
    await runHere(args, { NO_COLOR: '1' }, { streams: bare.streams });
    expect(screen.out()).toMatch(/\u001b\[32mcall_allocated\u001b\[0m +CA1/);
    expect(bare.out()).not.toContain('\u001b');
  });

  it('reports an invalid option, an unknown type, and an unreachable router', async () => {
    const since = await run('events --since yesterday');
    expect([since.code, since.stderr]).toEqual([2, expect.stringContaining('It must be a duration like')]);
    expect((await run('events --type A;B')).code).toBe(2);
    const unknown = await run('events --type cal_lost');
    expect([unknown.code, unknown.stderr]).toEqual([
      0,
      expect.stringContaining('unknown event type cal_lost'),
    ]);
    for (const args of ['events', 'events --follow'])
      expect((await run(`${args} --url http://127.0.0.1:1`)).code).toBe(6);
  });
});

describe('a router that searches its events', () => {
  const event = (n: number) => ({
    id: `${n}-0`,
    type: 'call_allocated',
    at: '2026-01-01T00:00:00Z',
    call: `CA${n}`,
  });

  it('reads pages with the filter, up to the limit or the oldest event', async () => {
    const asked: URLSearchParams[] = [];
    const router = await startScripted(({ url = '' }) => {
      const query = new URL(url, 'http://x').searchParams;
      if (!url.includes('/events/search')) return { json: { pools: {}, status: 'up' } };
      asked.push(query);
      const from = query.has('before') ? Number(query.get('before')?.split('-')[0]) - 1 : 1200;
      const count = Math.min(from, Number(query.get('limit')));
      const events = Array.from({ length: count }, (_, i) => event(from - i));
      return { json: { events, before: from > count ? events.at(-1)?.id : null, kept_since: null } };
    });
    onTestFinished(() => router.stop());
    const run = runner(() => router.url);
    const all = documentOf(await run('events --since 0 --type call_allocated --json'))
      .events as RouterEvent[];
    expect(all.map(({ id }) => id)).toEqual(Array.from({ length: 1200 }, (_, i) => `${i + 1}-0`));
    expect(asked.map((query) => query.get('before'))).toEqual([null, '701-0', '201-0']);
    expect(asked[0]?.get('type')).toBe('call_allocated');
    const few = documentOf(await run('events --limit 2 --json')).events as RouterEvent[];
    expect(few.map(({ id }) => id)).toEqual(['1199-0', '1200-0']);
  });

  it('reports a gap if the router no longer keeps events from the disconnect', async () => {
    const since: (string | null)[] = [];
    const server = createServer((request, response) => {
      const url = new URL(request.url ?? '', 'http://x');
      if (url.pathname.endsWith('/search')) {
        response.setHeader('content-type', 'application/json');
        const page = { events: [event(9000)], before: null, kept_since: '1970-01-01T00:00:08.000Z' };
        return void response.end(JSON.stringify(page));
      }
      since.push(url.searchParams.get('since'));
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const show = (n: number) => `id: ${n}-0\nevent: x\ndata: ${JSON.stringify(event(n))}\n\n`;
      if (since.length === 1) return void response.end(`: hello\n\n${show(5000)}`);
      // Repeats old events, like a proxy that replays a response.
      response.write(show(5000) + show(9000));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const api = new RouterApi({ baseUrl, key: undefined, timeoutMs: 10_000, clock: systemClock });
    const stop = new AbortController();
    const [seen, gaps] = [[] as string[], [] as string[]];
    const following = follow(api, systemClock, {
      since: '0-0',
      signal: stop.signal,
      onEvent: ({ id }) => seen.push(id),
      onGap: (keptSince) => gaps.push(keptSince),
    });
    await until(() => seen.length === 2, 'both events came');
    stop.abort();
    await following;
    api.close();
    expect(seen).toEqual(['5000-0', '9000-0']);
    expect(since).toEqual(['0-0', '5000-0']);
    expect(gaps).toEqual(['1970-01-01T00:00:08.000Z']);
  });
});

describe('one event', () => {
  it('is compared by number, not by text', () => {
    expect([
      isAfter('10-0', '9-5'),
      isAfter('9-10', '9-9'),
      isAfter('9-0', '9-0'),
      isAfter('8-1', '9'),
    ]).toEqual([true, true, false, false]);
  });

  it('without fields does not end in blanks', () => {
    const event = { id: '1-0', type: 'no_pods', at: 'x' };
    expect(withoutColours(eventLine(event, '12:00:00'))).toBe('12:00:00  no_pods');
  });

  it('is one line with every field, without control characters', () => {
    const nasty = {
      id: '1-0',
      type: 'new_type',
      at: 'x',
      call: `CA\u001b[2J${'x'.repeat(300)}`,
      why: 'a\nb',
    };
    expect(withoutColours(eventLine(nasty, '12:00:00'))).toMatch(
      /^12:00:00 {2}new_type +CA\?\[2Jx+… why=a\?b$/,
    );
  });
});
