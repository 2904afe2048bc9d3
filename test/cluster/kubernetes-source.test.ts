/** The voice agents of a namespace, listed and watched over real connections. */

import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.js';
import { KubeError } from '../../src/cluster/kubernetes/api.js';
import { kubernetesSource } from '../../src/cluster/kubernetes/source.js';
import { type PodChange, type PodSource, VersionExpired } from '../../src/cluster/pods.js';
import type { Cluster, ClusterOptions } from '../support/cluster.js';
import { ManualClock } from '../support/manual-clock.js';
import { until } from '../support/until.js';
import { type Kubernetes, kubeconfig, kubernetes, take } from './fixture.js';

const labelSelector = 'app=voice-agent';
const silenceMs = 5000;

let k8s: Kubernetes;
let stop: AbortController;
let warnings: string[];
beforeEach(() => {
  k8s = kubernetes();
  stop = new AbortController();
  warnings = [];
});
afterEach(async () => {
  stop.abort();
  await k8s.stop();
});

type Watch = NonNullable<PodSource['watch']>;
interface Opened {
  source: PodSource;
  list: PodSource['list'];
  watch: Watch;
}

const open = async (
  text: string,
  extra: { labelSelector?: string; silenceMs?: number; clock?: Clock } = {},
): Promise<Opened> => {
  const write = (line: string) => warnings.push((JSON.parse(line) as { msg: string }).msg);
  const source = kubernetesSource({
    api: await k8s.connect(text, extra.clock),
    namespace: 'default',
    labelSelector,
    silenceMs,
    clock: systemClock,
    log: pino({ level: 'warn' }, { write }),
    ...extra,
  });
  return { source, list: source.list, watch: source.watch as Watch };
};
const start = async (options?: Partial<ClusterOptions>) => {
  const cluster = await k8s.cluster(options);
  return { cluster, ...(await open(cluster.kubeconfig)) };
};
const names = (changes: readonly { name: string }[]) => changes.map(({ name }) => name);
const told = ({ pod }: PodChange) => pod && `${pod.name} ${pod.state}`;
const many = (cluster: Cluster, count: number) => {
  for (let i = 0; i < count; i += 1) cluster.pods.create({ name: `pod-${i}` });
};
const failure = (answer: Promise<unknown>) =>
  answer.then(
    () => 'it did not fail',
    (error: unknown) => error,
  );

it.each([
  ['the API server answers 404', { reason: 'NotFound' }, false],
  ['the pod has ended', { status: { phase: 'Failed' } }, false],
  ['the pod has other labels', { metadata: { labels: { app: 'web' } } }, true],
])('looks a pod up by name: %s', async (_, body, exists) => {
  const server = await k8s.serve((_request, response) => {
    response.statusCode = 'reason' in body ? 404 : 200;
    response.end(JSON.stringify(body));
  });
  const { source } = await open(kubeconfig(server));
  expect(await source.exists?.('a', stop.signal)).toBe(exists);
});

it('a 404 of a proxy does not say that a pod is deleted', async () => {
  const server = await k8s.serve((_request, response) => {
    response.statusCode = 404;
    response.end('<h1>404</h1>');
  });
  const { source } = await open(kubeconfig(server));
  await expect(source.exists?.('a', stop.signal)).rejects.toMatchObject({ status: 404 });
});

describe('a list', () => {
  it('has all pods of the namespace that the selector means, and the version to watch from', async () => {
    const { cluster, list } = await start();
    cluster.pods.create({ name: 'a' });
    cluster.pods.create({ name: 'b', ready: false });
    cluster.pods.create({ name: 'other', labels: { app: 'web' } });
    cluster.pods.create({ name: 'elsewhere', namespace: 'staging' });
    const { pods, version } = await list(stop.signal);
    expect(pods.map(({ name, state }) => [name, state])).toEqual([
      ['a', 'ready'],
      ['b', 'not_ready'],
    ]);
    expect(version).toBe(String(cluster.resourceVersion));
    expect(pods.map((pod) => pod.version)).toEqual(
      ['a', 'b'].map((name) => cluster.pods.get(name)?.metadata.resourceVersion),
    );
  });

  it('without pods is empty, and has a version', async () => {
    const { cluster, list } = await start();
    expect(await list(stop.signal)).toEqual({ pods: [], version: String(cluster.resourceVersion) });
  });

  it('lists with smaller pages if a page is too large, and says so once', async () => {
    const limits: string[] = [];
    const server = await k8s.serve((request, response) => {
      const limit = new URL(request.url ?? '', 'http://x').searchParams.get('limit') ?? '';
      limits.push(limit);
      response.write('{"items":[');
      if (limit === '500') for (let i = 0; i < 65; i += 1) response.write(' '.repeat(1024 * 1024));
      response.end('],"metadata":{"resourceVersion":"7"}}');
    });
    const { list } = await open(kubeconfig(server));
    for (let lists = 0; lists < 2; lists += 1)
      expect(await list(stop.signal)).toEqual({ pods: [], version: '7' });
    expect(limits).toEqual(['500', '50', '50']);
    expect(warnings).toEqual(['page of pods too large; listing with smaller pages']);
  });

  it('shows one version over all pages, with changes between them', async () => {
    const { cluster, list } = await start({ maxPage: 3 });
    many(cluster, 8);
    const before = String(cluster.resourceVersion);
    let pages = 0;
    cluster.faults.failRequests({
      verb: 'list',
      match: () => {
        pages += 1;
        if (pages === 2) {
          cluster.pods.remove('pod-7');
          cluster.pods.create({ name: 'pod-75' });
          cluster.pods.setReady('pod-6', false);
        }
        return false;
      },
    });
    const { pods, version } = await list(stop.signal);
    expect(pages).toBe(3);
    expect(names(pods)).toEqual(Array.from({ length: 8 }, (_, i) => `pod-${i}`));
    expect(pods[6]?.state).toBe('ready');
    expect(version).toBe(before);
  });

  it('whose version has expired starts over', async () => {
    const { cluster, list } = await start({ maxPage: 3 });
    many(cluster, 5);
    let pages = 0;
    cluster.faults.failRequests({
      verb: 'list',
      match: () => {
        pages += 1;
        if (pages === 2) {
          cluster.pods.create({ name: 'pod-5' });
          cluster.faults.expireHistory();
        }
        return false;
      },
    });
    const { pods, version } = await list(stop.signal);
    expect(pages).toBe(4);
    expect(names(pods)).toEqual(Array.from({ length: 6 }, (_, i) => `pod-${i}`));
    expect(version).toBe(String(cluster.resourceVersion));
  });

  it('that is always too old is an error after three tries', async () => {
    const { cluster, list } = await start();
    cluster.faults.failRequests({ verb: 'list', status: 410 });
    expect(await failure(list(stop.signal))).toMatchObject({ name: 'KubeError', status: 410 });
    expect(cluster.requests.count({ verb: 'list' })).toBe(3);
  });

  it.each([{ status: 500 }, { status: 429 }, { status: 403 }, { reset: true }])(
    'that fails (%j) is an error, never an empty list',
    async (fault) => {
      const { cluster, list } = await start({ maxPage: 3 });
      many(cluster, 5);
      cluster.faults.failRequests({ ...fault, match: ({ path }) => path.includes('continue=') });
      expect(await failure(list(stop.signal))).toBeInstanceOf(KubeError);
    },
  );

  it('is given up when it is aborted', async () => {
    const { cluster, list } = await start();
    cluster.faults.failRequests({ hang: true });
    const answer = failure(list(stop.signal));
    await until(() => cluster.requests.count() === 1, 'it was requested');
    stop.abort();
    expect(await answer).toBeInstanceOf(KubeError);
  });

  it.each(['null', '[]', '{}', '{"items":{}}', '{"kind":"Status","status":"Success"}'])(
    '%s is not a list of pods',
    async (body) => {
      const url = await k8s.serve((_, response) => void response.end(body));
      const { list } = await open(kubeconfig(url));
      expect(await failure(list(stop.signal))).toMatchObject({
        message: expect.stringContaining('not a list of pods'),
      });
    },
  );

  it('ignores invalid pods, and logs one line for all of a list', async () => {
    const items = [null, { metadata: { name: 'a', uid: 'u' } }, { metadata: { name: 'NOT A NAME' } }];
    const url = await k8s.serve(
      (_, response) => void response.end(JSON.stringify({ metadata: { resourceVersion: '5' }, items })),
    );
    const { list } = await open(kubeconfig(url));
    expect(names((await list(stop.signal)).pods)).toEqual(['a']);
    expect(warnings).toEqual(['ignoring pods with invalid names']);
  });

  it('sends the selector unchanged', async () => {
    const cluster = await k8s.cluster();
    cluster.pods.create({ name: 'a', labels: { app: 'voice-agent', env: 'prod' } });
    cluster.pods.create({ name: 'b', labels: { app: 'voice-agent', env: 'test' } });
    const selector = 'app=voice-agent,env in (prod,stage),!canary';
    const { list } = await open(cluster.kubeconfig, { labelSelector: selector });
    expect(names((await list(stop.signal)).pods)).toEqual(['a']);
  });
});

describe('a watch', () => {
  it('sends every change after its version in order, and pods that left the selector as deleted', async () => {
    const { cluster, list, watch } = await start();
    cluster.pods.create({ name: 'a' });
    const { version } = await list(stop.signal);
    cluster.pods.create({ name: 'b', ready: false });
    cluster.pods.setReady('b', true);
    cluster.pods.remove('a', { graceMs: 60_000 });
    cluster.pods.patch('b', { metadata: { labels: { app: 'web' } } });
    cluster.pods.create({ name: 'c' });
    cluster.pods.remove('c');
    const changes = await take(watch(version, stop.signal), 6);
    expect(changes.map(told)).toEqual([
      'b not_ready',
      'b ready',
      'a terminating',
      'b gone',
      'c ready',
      'c gone',
    ]);
    expect(changes.at(-1)?.version).toBe(String(cluster.resourceVersion));
    const versions = changes.map((change) => Number(change.version));
    expect(versions).toEqual(versions.toSorted((a, b) => a - b));
    expect(changes.every(({ pod, version: seen }) => pod?.version === seen)).toBe(true);
  });

  it('resumes from any version, without gaps and duplicates', async () => {
    const { cluster, watch } = await start();
    const from = String(cluster.resourceVersion);
    many(cluster, 6);
    const first = await take(watch(from, stop.signal), 2);
    const second = await take(watch(first.at(-1)?.version ?? '', stop.signal), 4);
    expect([...first, ...second].map(({ pod }) => pod?.name)).toEqual(
      Array.from({ length: 6 }, (_, i) => `pod-${i}`),
    );
  });

  it('bookmarks advance its version past changes of other pods', async () => {
    const { cluster, watch } = await start({ bookmarkIntervalMs: 20 });
    const from = String(cluster.resourceVersion);
    for (let i = 0; i < 5; i += 1) cluster.pods.create({ name: `web-${i}`, labels: { app: 'web' } });
    const [bookmark] = await take(watch(from, stop.signal), 1);
    expect(bookmark).toEqual({ version: String(cluster.resourceVersion) });
  });

  it('a version that is too old is VersionExpired, for a 410 and for an error in the stream', async () => {
    const { cluster, watch } = await start();
    const from = String(cluster.resourceVersion);
    many(cluster, 2);
    cluster.faults.expireHistory();
    expect(await failure(take(watch(from, stop.signal), 1))).toBeInstanceOf(VersionExpired);
    cluster.faults.failRequests({ verb: 'watch', status: 410, times: 1 });
    expect(await failure(take(watch(String(cluster.resourceVersion), stop.signal), 1))).toBeInstanceOf(
      VersionExpired,
    );
    const open = failure(take(watch(String(cluster.resourceVersion), stop.signal), 1));
    await until(() => cluster.openWatches === 1, 'it is open');
    cluster.faults.expireHistory({ tellWatches: true });
    expect(await open).toBeInstanceOf(VersionExpired);
  });

  it.each([{ status: 500 }, { status: 429 }, { status: 401 }, { reset: true }, { lost: true }])(
    'that fails (%j) is an error, and not a version that is too old',
    async (fault) => {
      const { cluster, watch } = await start();
      cluster.faults.failRequests({ verb: 'watch', ...fault });
      const error = await failure(take(watch(String(cluster.resourceVersion), stop.signal), 1));
      expect(error).toBeInstanceOf(KubeError);
    },
  );

  it('that the server ends is over, without an error', async () => {
    const { cluster, watch } = await start();
    const changes = watch(String(cluster.resourceVersion), stop.signal);
    const next = changes.next();
    await until(() => cluster.openWatches === 1, 'it is open');
    cluster.faults.endWatches();
    expect(await next).toEqual({ done: true, value: undefined });
  });

  it('without events is closed, although its connection stays open', async () => {
    const clock = new ManualClock();
    const cluster = await k8s.cluster({ bookmarkIntervalMs: 250, clock });
    const { watch } = await open(cluster.kubeconfig, { silenceMs: 300, clock });
    const changes = watch(String(cluster.resourceVersion), stop.signal);
    const untilListening = () => until(() => clock.timersMs.includes(300), 'the silence is measured');
    // Bookmarks are signs of life: many times the silence passes without an error.
    const bookmarks = [];
    for (let i = 0; i < 30; i += 1) {
      const next = changes.next();
      await until(() => cluster.openWatches === 1, 'it is open');
      await untilListening();
      clock.advance(250);
      bookmarks.push((await next).value);
    }
    expect(bookmarks.every((change) => change.pod === undefined)).toBe(true);
    cluster.faults.silenceWatches();
    cluster.pods.create({ name: 'a' });
    const silent = failure(take(changes, 1000));
    await untilListening();
    clock.advance(300);
    expect(await silent).toMatchObject({
      name: 'KubeError',
      message: expect.stringContaining('no response from the Kubernetes API for 300 ms'),
    });
    await until(() => cluster.openWatches === 0, 'its connection is closed');
  });

  it('asks the server to end it after five to ten minutes, at random', async () => {
    const { cluster, watch } = await start();
    many(cluster, 1);
    for (let i = 0; i < 20; i += 1) await take(watch('1000', stop.signal), 1);
    const asked = cluster.requests
      .list({ verb: 'watch' })
      .map(({ path }) => new URLSearchParams(path.split('?')[1]));
    const seconds = asked.map((query) => Number(query.get('timeoutSeconds')));
    expect(Math.min(...seconds)).toBeGreaterThanOrEqual(300);
    expect(Math.max(...seconds)).toBeLessThanOrEqual(600);
    expect(new Set(seconds).size).toBeGreaterThan(3);
    expect(asked.every((query) => query.get('allowWatchBookmarks') === 'true')).toBe(true);
  });

  it('is over at once when it is aborted', async () => {
    const { cluster, watch } = await start();
    const next = failure(watch(String(cluster.resourceVersion), stop.signal).next());
    await until(() => cluster.openWatches === 1, 'it is open');
    stop.abort();
    expect(await next).toBeInstanceOf(KubeError);
  });

  const streamOf = async (text: string) => {
    const url = await k8s.serve((_, response) => void response.end(text));
    return (await open(kubeconfig(url))).watch('1', stop.signal);
  };
  const added = (name: unknown, version = '7') =>
    `{"type":"ADDED","object":{"metadata":{"name":${JSON.stringify(name)},"resourceVersion":"${version}"}}}\n`;

  it.each([
    ['no JSON', 'upstream connect error\n'],
    ['a number', '5\n'],
    ['null', 'null\n'],
    ['no object', '{"type":"ADDED"}\n'],
    ['no version', '{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n'],
    [
      'a version that is a number',
      '{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":7}}}\n',
    ],
    ['an error of another kind', '{"type":"ERROR","object":{"code":500,"message":"etcd"}}\n'],
    ['an error without a message', '{"type":"ERROR"}\n'],
  ])('a line that is not an event (%s) is an error after the events before it', async (_, line) => {
    const changes = await streamOf(added('a') + line);
    expect(told((await changes.next()).value)).toBe('a not_ready');
    expect(await failure(changes.next())).toBeInstanceOf(KubeError);
  });

  it('an event about an invalid pod advances the version and is ignored', async () => {
    const changes = await take(await streamOf(added('NOT A NAME') + added(null, '8') + added('a', '9')), 3);
    expect(changes.map((change) => [change.version, told(change)])).toEqual([
      ['7', undefined],
      ['8', undefined],
      ['9', 'a not_ready'],
    ]);
    expect(warnings).toHaveLength(2);
  });

  it('five thousand changes at once all arrive', async () => {
    const { cluster, watch } = await start();
    const from = String(cluster.resourceVersion);
    many(cluster, 5000);
    const changes = await take(watch(from, stop.signal), 5000);
    expect(new Set(changes.map(({ pod }) => pod?.name)).size).toBe(5000);
  });
});
