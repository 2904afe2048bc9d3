/** Requests to the Kubernetes API, over real connections: each ends with an answer, an error or its deadline. */
import { unlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { sendRequest } from '../../src/agent/http-request.js';
import { systemClock } from '../../src/clock.js';
import { connectKubernetes, KubeError, type KubeRequest } from '../../src/cluster/kubernetes/api.js';
import { findAccess } from '../../src/cluster/kubernetes/kubeconfig.js';
import { ConfigError } from '../../src/errors.js';
import { version } from '../../src/version.js';
import { abortReferences } from '../support/abort-references.js';
import { tlsAvailable } from '../support/engines.js';
import { ManualClock } from '../support/manual-clock.js';
import { until } from '../support/until.js';
import { type Kubernetes, kubeconfig, kubernetes, take } from './fixture.js';

const path = '/api/v1/namespaces/default/pods';
const request: KubeRequest = { path, timeoutMs: 5000 };
const watch: KubeRequest = { path, query: { watch: 'true', resourceVersion: '1000' }, timeoutMs: 5000 };
const failure = async (answer: Promise<unknown>): Promise<KubeError> => {
  const error: unknown = await answer.then(
    () => 'it did not fail',
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(KubeError);
  return error as KubeError;
};

let k8s: Kubernetes;
beforeEach(() => {
  k8s = kubernetes();
});
afterEach(async () => {
  await k8s.stop();
});

describe('a value', () => {
  it('is what the server answers', async () => {
    const cluster = await k8s.cluster();
    cluster.pods.create({ name: 'a' });
    const api = await k8s.connect(cluster.kubeconfig);
    const pod = await api.json<{ metadata: { name: string } }>({ ...request, path: `${path}/a` });
    expect(pod.metadata.name).toBe('a');
  });

  it('leaves nothing behind in the signal of its caller', async () => {
    const cluster = await k8s.cluster();
    cluster.pods.create({ name: 'a' });
    const api = await k8s.connect(cluster.kubeconfig);
    const { signal } = new AbortController();
    await api.json({ ...request, signal });
    await failure(api.json({ ...request, path: `${path}/b`, signal }));
    expect(await take(api.lines({ ...watch, signal }), 1)).toHaveLength(1);
    expect(abortReferences(signal)).toBe(0);
  });

  it('may need a body: created, updated, deleted', async () => {
    const cluster = await k8s.cluster();
    const api = await k8s.connect(cluster.kubeconfig);
    const lease = (holderIdentity: string, version?: string) => ({
      metadata: { name: 'lock', ...(version ? { resourceVersion: version } : {}) },
      spec: { holderIdentity },
    });
    const leases = '/apis/coordination.k8s.io/v1/namespaces/default/leases';
    const one = { path: `${leases}/lock`, timeoutMs: 5000 };
    type Lease = { metadata: { resourceVersion: string }; spec: { holderIdentity: string } };
    const made = await api.json<Lease>({ ...one, method: 'POST', path: leases, body: lease('ä') });
    expect(made.spec.holderIdentity).toBe('ä');
    const stale = api.json({ ...one, method: 'PUT', body: lease('b', '1') });
    expect(await failure(stale)).toMatchObject({ status: 409, reason: 'Conflict' });
    const body = lease('c', made.metadata.resourceVersion);
    const updated = await api.json<Lease>({ ...one, method: 'PUT', body });
    expect(updated.spec.holderIdentity).toBe('c');
    await api.json({ ...one, method: 'DELETE' });
    expect(await failure(api.json(one))).toMatchObject({ status: 404, reason: 'NotFound' });
  });

  it.each([
    { status: 401, reason: 'Unauthorized' },
    { status: 403, reason: 'Forbidden' },
    { status: 410, reason: 'Expired' },
    { status: 429, retryAfterSeconds: 3 },
    { status: 500, reason: 'InternalError' },
    { status: 503, reason: 'ServiceUnavailable' },
  ])('the answer $status is an error that says so', async ({ status, reason, retryAfterSeconds }) => {
    const cluster = await k8s.cluster();
    cluster.faults.failRequests({ status, times: 1, ...(retryAfterSeconds ? { retryAfterSeconds } : {}) });
    const api = await k8s.connect(cluster.kubeconfig);
    const error = await failure(api.json(request));
    expect(error.status).toBe(status);
    if (reason) expect(error.reason).toBe(reason);
    expect(error.retryAfterMs).toBe(retryAfterSeconds && retryAfterSeconds * 1000);
    expect(error.message).toContain(`answered ${status} to GET ${path}`);
    await api.json(request);
  });

  it('a server that breaks the connection is an error without a status, and the next request has its own', async () => {
    const cluster = await k8s.cluster();
    const api = await k8s.connect(cluster.kubeconfig);
    await api.json(request);
    cluster.faults.failRequests({ reset: true, times: 1 });
    expect(await failure(api.json(request))).toMatchObject({ status: undefined });
    await api.json(request);
  });

  it('a 101 is an error, not a request without an end', async () => {
    const server = createServer((socket) => {
      socket.once('data', () =>
        socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n'),
      );
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const sent = sendRequest(`http://127.0.0.1:${port}/`, {
      method: 'GET',
      signal: new AbortController().signal,
    });
    await expect(sent).rejects.toThrow('closed without a response');
    const api = await k8s.connect(kubeconfig(`http://127.0.0.1:${port}`));
    expect((await failure(api.json(request))).message).toContain('closed without a response');
    server.close();
  });

  it('an unreachable server is an error, and requests work when it is reachable again', async () => {
    const cluster = await k8s.cluster();
    const api = await k8s.connect(cluster.kubeconfig);
    await cluster.down();
    expect((await failure(api.json(request))).message).toMatch(
      /cannot reach the Kubernetes API: .*ECONNREFUSED/,
    );
    await cluster.up();
    await api.json(request);
  });

  it('a server that never answers is given up at the deadline', async () => {
    const cluster = await k8s.cluster();
    cluster.faults.failRequests({ hang: true });
    const api = await k8s.connect(cluster.kubeconfig);
    const error = await failure(api.json({ ...request, timeoutMs: 50.4321 }));
    expect(error.message).toBe(`no response from the Kubernetes API for 50 ms (GET ${path})`);
  });

  it('an answer that stops in the middle is given up at the deadline, which counts for the whole answer', async () => {
    let bytes = 0;
    const url = await k8s.serve((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      const drip = setInterval(() => response.write(bytes++ === 0 ? '{"items":[' : ' '), 10);
      response.on('close', () => clearInterval(drip));
    });
    const api = await k8s.connect(kubeconfig(url));
    // On a busy machine the first bytes may come after a short deadline.
    for (let timeoutMs = 100; bytes < 3; timeoutMs *= 2) {
      const error = await failure(api.json({ ...request, timeoutMs }));
      expect(error.message).toContain(`API for ${timeoutMs} ms`);
    }
  });

  it('an abort ends it at once', async () => {
    const cluster = await k8s.cluster();
    cluster.faults.failRequests({ hang: true });
    const api = await k8s.connect(cluster.kubeconfig);
    const stop = new AbortController();
    const answer = failure(api.json({ ...request, timeoutMs: 60_000, signal: stop.signal }));
    await until(() => cluster.requests.count() === 1, 'the request is there');
    stop.abort();
    expect((await answer).message).toBe(`aborted (GET ${path})`);
    const late = await failure(api.json({ ...request, signal: stop.signal }));
    expect(late.message).toContain('aborted');
    expect(cluster.requests.count()).toBe(1);
  });

  it.each([
    ['nothing', ''],
    ['a page of a proxy', '<html>502</html>'],
    ['half an answer', '{"items":['],
  ])('%s instead of JSON is an error', async (_, body) => {
    const url = await k8s.serve((_request, response) => void response.end(body));
    const api = await k8s.connect(kubeconfig(url));
    expect((await failure(api.json(request))).message).toContain(path);
  });

  it('the error of a response that is not a Status has the start of its text', async () => {
    const url = await k8s.serve((_, response) => {
      response.writeHead(502);
      response.end(`bad gateway ${'x'.repeat(1_000_000)}`);
    });
    const api = await k8s.connect(kubeconfig(url));
    const error = await failure(api.json(request));
    expect(error).toMatchObject({ status: 502, reason: undefined });
    expect(error.message).toContain('bad gateway');
    expect(error.message.length).toBeLessThan(500);
  });

  it('a server below a path keeps that path', async () => {
    const asked: string[] = [];
    const url = await k8s.serve((incoming, response) => {
      asked.push(incoming.url ?? '');
      response.end('{}');
    });
    const api = await k8s.connect(kubeconfig(`${url}/k8s/clusters/c-1/`));
    await api.json(request);
    await api.json({ ...request, query: { labelSelector: 'app=voice agent,tier in (a,b)' } });
    expect(asked[0]).toBe(`/k8s/clusters/c-1${path}`);
    expect(new URL(asked[1] ?? '', url).searchParams.get('labelSelector')).toBe(
      'app=voice agent,tier in (a,b)',
    );
  });

  it('requests in sequence share a connection', async () => {
    const ports = new Set<number | undefined>();
    const url = await k8s.serve((incoming, response) => {
      ports.add(incoming.socket.remotePort);
      response.end('{}');
    });
    const api = await k8s.connect(kubeconfig(url));
    for (let i = 0; i < 5; i += 1) await api.json(request);
    expect(ports.size).toBe(1);
  });
});

describe('a stream', () => {
  it('gives its lines as they come, and ends when the server ends it', async () => {
    const cluster = await k8s.cluster();
    const api = await k8s.connect(cluster.kubeconfig);
    const lines = api.lines({
      ...watch,
      query: { ...watch.query, resourceVersion: String(cluster.resourceVersion) },
    });
    const first = lines.next();
    await until(() => cluster.openWatches === 1, 'it is open');
    cluster.pods.create({ name: 'a' });
    expect(JSON.parse(String((await first).value))).toMatchObject({ type: 'ADDED' });
    cluster.faults.endWatches();
    expect(await lines.next()).toEqual({ done: true, value: undefined });
  });

  it.each([
    ['cut', (c: Awaited<ReturnType<Kubernetes['cluster']>>) => c.faults.cutWatches()],
    ['the server goes down', (c: Awaited<ReturnType<Kubernetes['cluster']>>) => c.down()],
  ])('that is broken (%s) is an error, not an end', async (_, breakIt) => {
    const cluster = await k8s.cluster();
    cluster.pods.create({ name: 'a' });
    const api = await k8s.connect(cluster.kubeconfig);
    const lines = api.lines(watch);
    await lines.next();
    const next = failure(lines.next());
    await breakIt(cluster);
    expect((await next).status).toBeUndefined();
  });

  it('without data is an error after its timeout, and every chunk restarts the timeout', async () => {
    let write: ((chunk: string) => void) | undefined;
    const url = await k8s.serve((_, response) => {
      response.writeHead(200).flushHeaders();
      write = (chunk) => response.write(chunk);
    });
    const clock = new ManualClock();
    const api = await k8s.connect(kubeconfig(url), clock);
    const got: string[] = [];
    const error = failure(
      (async () => {
        for await (const line of api.lines({ ...watch, timeoutMs: 150 })) got.push(line);
      })(),
    );
    const send = await until(() => write, 'it is open');
    // Not even whole lines.
    for (const chunk of ['"', 'x', 'x', '"\n', '"', 'x', 'x', '"\n', '"', 'x', 'x', '"\n']) {
      clock.advance(149);
      send(chunk);
      await until(() => clock.timersMs[0] === 150, 'the timeout has restarted');
    }
    await until(() => got.length === 3, 'all lines are read');
    clock.advance(149);
    expect(clock.timersMs).toEqual([1]);
    clock.advance(1);
    expect((await error).message).toContain('no response from the Kubernetes API for 150 ms');
    expect(got).toEqual(['"xx"', '"xx"', '"xx"']);
  });

  it('that is silent from the beginning is given up too', async () => {
    const cluster = await k8s.cluster();
    cluster.faults.failRequests({ hang: true });
    const api = await k8s.connect(cluster.kubeconfig);
    const error = await failure(api.lines({ ...watch, timeoutMs: 50 }).next());
    expect(error.message).toContain('no response from the Kubernetes API for 50 ms');
  });

  it('counts the silence of the server, not the time that its reader takes', async () => {
    let goOn = () => {};
    const url = await k8s.serve((_, response) => {
      response.write('1\n2\n');
      goOn = () => response.end('3\n');
    });
    const clock = new ManualClock();
    const api = await k8s.connect(kubeconfig(url), clock);
    const got: string[] = [];
    for await (const line of api.lines({ ...watch, timeoutMs: 1000 })) {
      got.push(line);
      clock.advance(5000);
      if (line === '2') goOn();
    }
    expect(got).toEqual(['1', '2', '3']);
  });

  it('is refused like any request', async () => {
    const cluster = await k8s.cluster();
    cluster.faults.failRequests({ status: 410, times: 1 });
    const api = await k8s.connect(cluster.kubeconfig);
    expect(await failure(api.lines(watch).next())).toMatchObject({ status: 410 });
  });

  it('ends at once when it is aborted', async () => {
    const cluster = await k8s.cluster();
    const api = await k8s.connect(cluster.kubeconfig);
    const stop = new AbortController();
    const next = failure(api.lines({ ...watch, timeoutMs: 60_000, signal: stop.signal }).next());
    await until(() => cluster.openWatches === 1, 'it is open');
    stop.abort();
    expect((await next).message).toContain('aborted');
    await until(() => cluster.openWatches === 0, 'the connection is closed');
  });

  it('leaves no connection behind when its reader stops reading', async () => {
    const cluster = await k8s.cluster();
    for (const name of ['a', 'b', 'c']) cluster.pods.create({ name });
    const api = await k8s.connect(cluster.kubeconfig);
    await take(api.lines(watch), 2);
    await until(() => cluster.openWatches === 0, 'the connection is closed');
    const failing = async () => {
      for await (const _ of api.lines(watch)) throw new Error('the store is down');
    };
    await expect(failing()).rejects.toThrow('the store is down');
    await until(() => cluster.openWatches === 0, 'the connection is closed');
  });

  it('has lines of any length, cut anywhere, and only where a line ends', async () => {
    const long = JSON.stringify({ note: 'é€😀'.repeat(200_000) });
    const odd = JSON.stringify({ note: 'a\u2028b\u2029c\rd' });
    const url = await k8s.serve((_, response) => {
      const bytes = Buffer.from(`${long}\n\r\n\n${odd}\r\n{"cut":`);
      for (let at = 0; at < bytes.length; at += 100_001) response.write(bytes.subarray(at, at + 100_001));
      response.end();
    });
    const api = await k8s.connect(kubeconfig(url));
    const lines = await take(api.lines(watch), 10);
    expect(lines.map((line) => line.trimEnd())).toEqual([long, odd]);
  });

  it('a line without an end is an error before it fills the memory', async () => {
    const url = await k8s.serve((_, response) => {
      const megabyte = Buffer.alloc(1024 * 1024, 'x');
      const pour = () => {
        while (!response.destroyed && response.write(megabyte));
      };
      response.on('drain', pour);
      pour();
    });
    const api = await k8s.connect(kubeconfig(url));
    expect((await failure(api.lines(watch).next())).message).toMatch(/a line of more than \d+ characters/);
  });
});

describe('where the server is, and who we are', () => {
  const whoAsks = () => {
    const seen: (string | undefined)[] = [];
    const url = k8s.serve((incoming, response) => {
      seen.push(incoming.headers.authorization);
      response.end('{}');
    });
    return { seen, url };
  };

  it('the token of the kubeconfig is sent', async () => {
    const cluster = await k8s.cluster({ token: 'secret' });
    const api = await k8s.connect(cluster.kubeconfig);
    await api.json(request);
    const stranger = await k8s.connect(kubeconfig(cluster.url, { user: { token: 'wrong' } }));
    expect(await failure(stranger.json(request))).toMatchObject({ status: 401 });
  });

  it.each([
    [
      'of a service account',
      (tokenFile: string) => ({ 'auth-provider': { name: 'tokenFile', config: { tokenFile } } }),
    ],
    ['of a kubeconfig', (tokenFile: string) => ({ tokenFile })],
    ['of a kubeconfig, beside a token', (tokenFile: string) => ({ tokenFile, token: 'old' })],
    ['named from the folder of the kubeconfig', () => ({ tokenFile: 'token' })],
  ])('a token file %s is used as it is now, without its line end', async (_, userOf) => {
    const { seen, url } = whoAsks();
    const user = userOf(k8s.file('token', 'first\n'));
    const api = await k8s.connect(kubeconfig(await url, { user }));
    await api.json(request);
    k8s.file('token', 'second\n');
    await api.json(request);
    expect(seen).toEqual(['Bearer first', 'Bearer second']);
  });

  it('a request is repeated once after a 401 when the token file has changed', async () => {
    const seen: (string | undefined)[] = [];
    const url = await k8s.serve((incoming, response) => {
      seen.push(incoming.headers.authorization);
      k8s.file('token', `token-${seen.length + 1}`);
      if (incoming.headers.authorization !== 'Bearer token-2') response.statusCode = 401;
      response.end('{}');
    });
    const user = { tokenFile: k8s.file('token', 'token-1') };
    const api = await k8s.connect(kubeconfig(url, { user }));
    expect(await api.json(request)).toEqual({});
    expect(seen).toEqual(['Bearer token-1', 'Bearer token-2']);
    expect(await failure(api.json(request))).toMatchObject({ status: 401 });
    expect(seen).toHaveLength(4);
  });

  it('a 401 with the same token is not repeated, and a missing token file is named', async () => {
    const cluster = await k8s.cluster({ token: 'secret' });
    const tokenFile = k8s.file('token', 'wrong');
    const api = await k8s.connect(kubeconfig(cluster.url, { user: { tokenFile } }));
    expect(await failure(api.json(request))).toMatchObject({ status: 401 });
    unlinkSync(tokenFile);
    expect((await failure(api.json(request))).message).toContain(tokenFile);
  });

  it('without a kubeconfig the service account of the pod is used', async () => {
    vi.stubEnv('HOME', k8s.folder);
    k8s.file('ca.crt', 'the authority');
    const host = { kubernetesServiceHost: 'fd00::1', kubernetesServicePort: 6443 };
    await expect(findAccess(host, k8s.folder)).rejects.toThrow(
      'neither ~/.kube/config nor a service account exists',
    );
    const tokenFile = k8s.file('token', 'secret');
    await expect(findAccess({}, k8s.folder)).rejects.toThrow(
      'neither ~/.kube/config nor a service account exists',
    );
    const { server, apply, ...access } = await findAccess(host, k8s.folder);
    expect([server, access]).toEqual(['https://[fd00::1]:6443', { tokenFile, isProxied: false }]);
    const options = {};
    await apply(options);
    expect(options).toEqual({ ca: Buffer.from('the authority'), headers: {} });
    vi.unstubAllEnvs();
  });

  it('a credential plugin is asked, and only such a kubeconfig loads the library of 50 MB', async () => {
    const { seen, url } = whoAsks();
    const { cache } = createRequire(import.meta.url);
    // One of its dependencies.
    const isLoaded = () => Object.keys(cache).some((file) => file.includes('/node_modules/hpagent/'));
    const wasLoaded = isLoaded();
    await (await k8s.connect(kubeconfig(await url, { user: { token: 'plain' } }))).json(request);
    expect(isLoaded()).toBe(wasLoaded);
    const credential = JSON.stringify({ status: { token: 'of-the-plugin' } });
    const exec = { command: process.execPath, args: ['-e', `console.log('${credential}')`] };
    await (await k8s.connect(kubeconfig(await url, { user: { exec } }))).json(request);
    expect(isLoaded()).toBe(true);
    expect(seen).toEqual(['Bearer plain', 'Bearer of-the-plugin']);
  });

  it('requests go through the proxy of the cluster', async () => {
    const asked: string[] = [];
    const proxy = createServer((socket) => {
      socket.once('data', (data) => {
        asked.push(String(data).split('\r\n')[0] ?? '');
        socket.end();
      });
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const cluster = { 'proxy-url': url };
    const api = await k8s.connect(kubeconfig('https://kubernetes.invalid:6443', { cluster }));
    await failure(api.json(request));
    expect(asked).toEqual(['CONNECT kubernetes.invalid:6443 HTTP/1.1']);
    proxy.close();
  });

  it('a user with a password, who impersonates another one', async () => {
    const { seen, url } = whoAsks();
    const user = { username: 'ada', password: 'secret', as: 'grace' };
    await (await k8s.connect(kubeconfig(await url, { user }))).json(request);
    expect(seen).toEqual([`Basic ${Buffer.from('ada:secret').toString('base64')}`]);
  });

  it('every request names the router and its version', async () => {
    const cluster = await k8s.cluster();
    const api = await k8s.connect(cluster.kubeconfig);
    await api.json(request);
    expect(cluster.requests.list().map(({ userAgent }) => userAgent)).toEqual([`smart-router/${version}`]);
  });

  it.runIf(tlsAvailable() === true)(
    'a server with its own certificate authority is trusted only with that authority',
    async () => {
      const tls = k8s.certificate();
      const url = await k8s.serve((_, response) => void response.end('{"items":[]}'), tls);
      const inline = await k8s.connect(
        kubeconfig(url, {
          cluster: { 'certificate-authority-data': Buffer.from(tls.cert).toString('base64') },
        }),
      );
      expect(await inline.json(request)).toEqual({ items: [] });
      // A path is relative to the folder of the kubeconfig.
      const byFile = await k8s.connect(
        kubeconfig(url, { cluster: { 'certificate-authority': 'certificate.pem' } }),
      );
      expect(await byFile.json(request)).toEqual({ items: [] });
      const unknown = await k8s.connect(kubeconfig(url));
      expect((await failure(unknown.json(request))).message).toMatch(/self-signed certificate/);
      const careless = await k8s.connect(kubeconfig(url, { cluster: { 'insecure-skip-tls-verify': true } }));
      expect(await careless.json(request)).toEqual({ items: [] });
    },
  );

  describe('several files are merged as kubectl does it', () => {
    const of = (server: string, name: string, token: string) =>
      JSON.parse(kubeconfig(server, { name, user: { token } })) as Record<string, unknown>;
    const without = (config: Record<string, unknown>, ...fields: string[]) =>
      JSON.stringify(Object.fromEntries(Object.entries(config).filter(([field]) => !fields.includes(field))));

    it('the context of one file may name a cluster and user of another', async () => {
      const { seen, url } = whoAsks();
      const whole = of(await url, 'main', 'right');
      const api = await k8s.connect([
        without(whole, 'users'),
        without(whole, 'clusters', 'contexts', 'current-context'),
      ]);
      await api.json(request);
      expect(seen).toEqual(['Bearer right']);
    });

    it('the first file that sets the current context wins', async () => {
      const { seen, url } = whoAsks();
      const [first, second] = [of(await url, 'one', 'first'), of(await url, 'two', 'second')];
      await (await k8s.connect([first, second].map((config) => JSON.stringify(config)))).json(request);
      await (await k8s.connect([without(first, 'current-context'), JSON.stringify(second)])).json(request);
      expect(seen).toEqual(['Bearer first', 'Bearer second']);
    });

    it('the first file that has a name wins', async () => {
      const { seen, url } = whoAsks();
      const files = [of(await url, 'main', 'first'), of('http://127.0.0.1:1', 'main', 'second')];
      await (await k8s.connect(files.map((config) => JSON.stringify(config)))).json(request);
      expect(seen).toEqual(['Bearer first']);
    });

    it('a file that is missing among others is passed over', async () => {
      const { seen, url } = whoAsks();
      const there = k8s.file('there', kubeconfig(await url, { user: { token: 'right' } }));
      const files = [join(k8s.folder, 'missing'), there].join(delimiter);
      const api = await connectKubernetes({ kubeconfig: files }, systemClock);
      await api.json(request);
      api.close();
      expect(seen).toEqual(['Bearer right']);
    });
  });

  it.each([
    ['a file that is not there', undefined, 'no such file'],
    ['a file that is not YAML', 'clusters: [\n  - {name: "x\n', 'broken: '],
    ['a file that is not a kubeconfig', '[1, 2]', 'broken is not a kubeconfig'],
    ['an empty file', '', 'broken is not a kubeconfig'],
    [
      'no current context',
      kubeconfig('http://127.0.0.1:1').replace('"current-context":"main"', '"x":1'),
      'it has no current context',
    ],
    [
      'a context that is not there',
      kubeconfig('http://127.0.0.1:1').replace('"current-context":"main"', '"current-context":"other"'),
      'the current context "other" does not exist',
    ],
    [
      'a user that is not there',
      kubeconfig('http://127.0.0.1:1').replace(/"users":\[.*?\],/, '"users":[],'),
      'the user "',
    ],
    ['a server that is not an address', kubeconfig('nowhere at all'), 'has no valid server: nowhere at all'],
    ['a server without http', kubeconfig('host:6443'), 'has no valid server: host:6443'],
  ])('%s is a problem of the configuration, told in one line', async (_, text, problem) => {
    const file = text === undefined ? join(k8s.folder, 'missing') : k8s.file('broken', text);
    const error: unknown = await connectKubernetes({ kubeconfig: file }, systemClock).catch(
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(ConfigError);
    const { problems } = error as ConfigError;
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(/^KUBECONFIG [^\n]+$/);
    expect(problems[0]).toContain(problem);
  });
});
