/** A simulated cluster for one test, and raw requests to it. */
import { type ClientRequest, get, type IncomingMessage } from 'node:http';
import { afterEach } from 'vitest';
import { systemClock } from '../../../src/clock.js';
import { type Cluster, type ClusterOptions, startCluster } from '../../support/cluster.js';
import { until } from '../../support/until.js';

const endings: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

export function finallyDo(end: () => unknown): void {
  endings.push(end);
}

export async function freshCluster(options: Partial<ClusterOptions> = {}): Promise<Cluster> {
  const cluster = await startCluster({ clock: systemClock, ...options });
  finallyDo(() => cluster.stop());
  return cluster;
}

export interface Answer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: answers of any kind.
  body: any;
}

export const podsPath = '/api/v1/namespaces/default/pods';
export const leasesPath = '/apis/coordination.k8s.io/v1/namespaces/default/leases';
export const setsPath = '/apis/apps/v1/namespaces/default/statefulsets';

export async function ask(
  cluster: Cluster,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
  const response = await fetch(cluster.url + path, {
    method,
    headers: { 'content-type': type, ...headers },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  const isJson = text.startsWith('{');
  return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text };
}

export interface WatchEvent {
  type: string;
  // biome-ignore lint/suspicious/noExplicitAny: an object of any kind.
  object: any;
}

export interface OpenWatch {
  events: WatchEvent[];
  /** `TYPE name` of everything but bookmarks. */
  seen(): string[];
  ended(): 'open' | 'clean' | 'broken';
  close(): void;
}

/** Resolves at the start of the response. */
export async function watch(
  cluster: Cluster,
  query = '',
  path = podsPath,
  headers: Record<string, string> = {},
): Promise<OpenWatch> {
  const events: WatchEvent[] = [];
  let state: 'open' | 'clean' | 'broken' = 'open';
  let request: ClientRequest | undefined;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request = get(`${cluster.url}${path}?watch=true&${query}`, { agent: false, headers }, resolve);
    request.once('error', reject);
  });
  if (response.statusCode !== 200) throw new Error(`the watch was answered with ${response.statusCode}`);
  let rest = '';
  response.setEncoding('utf8');
  response.on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) events.push(JSON.parse(line) as WatchEvent);
  });
  response.once('end', () => {
    state = 'clean';
  });
  response.once('error', () => {
    state = 'broken';
  });
  const close = () => request?.destroy();
  finallyDo(close);
  return {
    events,
    seen: () =>
      events
        .filter(({ type }) => type !== 'BOOKMARK')
        .map(({ type, object }) => `${type} ${object.metadata?.name ?? object.reason}`),
    ended: () => state,
    close,
  };
}

/** Waits until the watch has seen exactly these, in this order. */
export async function sees(open: OpenWatch, ...expected: string[]): Promise<void> {
  await until(
    () => open.seen().length >= expected.length,
    `${expected.join(', ')} (${open.seen().join(', ')})`,
  );
  if (open.seen().join() !== expected.join()) throw new Error(`it saw ${open.seen().join(', ')}`);
}

export const lease = (name: string, holder: string, extra: object = {}, resourceVersion?: string) => ({
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: { name, ...(resourceVersion === undefined ? {} : { resourceVersion }) },
  spec: {
    holderIdentity: holder,
    leaseDurationSeconds: 15,
    renewTime: '2026-01-02T03:04:05.000000Z',
    ...extra,
  },
});
