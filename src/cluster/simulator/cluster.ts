/**
 * A small Kubernetes cluster inside the process: an API server on loopback, and pods that a test or a simulated
 * StatefulSet controls. For the requests of the router and of kubectl `get` and `delete` it has the semantics
 * of the real server: consistent pages, watches with bookmarks and 410, conflicts on writes, deletion in two steps.
 *
 * It has neither the capacity nor the security of a real server: everything is in memory, there is no TLS, and only the
 * hooks of the caller run in its pods.
 */
import type { Clock } from '../../clock.js';
import { ApiError } from './api-error.js';
import { Pods } from './pods.js';
import { Registry } from './registry.js';
import { ApiServer, type RequestHooks } from './server.js';
import { Store } from './store.js';
import { Watches } from './watches.js';

export interface ClusterOptions {
  clock: Clock;
  /** Default: any free port. */
  port?: number;
  /** The default namespace of pods, and the one of the kubeconfig. Default: `default`. */
  namespace?: string;
  /**
   * Set: requests need this token or one from `kubeconfigFor`. kubectl sends no token over plain HTTP, so it works only
   * without.
   */
  token?: string;
  /** How many changes of each resource the history keeps. Default: 10,000. */
  historyLimit?: number;
  /** Default: two minutes, as in a real server. */
  bookmarkIntervalMs?: number;
  /** The maximum number of items in a page. Default: unlimited. */
  maxPage?: number;
  hooks?: RequestHooks;
}

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

const defaultClient = 'default';

export async function startCluster(options: ClusterOptions) {
  const { clock, port = 0, namespace = 'default', token, historyLimit = 10_000 } = options;
  const { bookmarkIntervalMs = 120_000, maxPage = Number.POSITIVE_INFINITY, hooks } = options;
  const store = new Store(historyLimit);
  const registry = new Registry(store, clock);
  const watches = new Watches(store, clock, bookmarkIntervalMs);
  const clients = new Map<string, string>();
  const clientOf = (authorization: string | undefined): string => {
    const given = /^Bearer (.+)$/i.exec(authorization ?? '')?.[1];
    const client = given === undefined ? undefined : clients.get(given);
    if (client === undefined && token !== undefined) throw new ApiError(401, 'Unauthorized');
    return client ?? 'anonymous';
  };
  const server = new ApiServer({ clock, store, registry, watches, maxPage, clientOf, hooks });
  await server.open(port);

  const url = `http://127.0.0.1:${server.port}`;
  /** A kubeconfig file for a named client, which the hooks see. */
  const kubeconfigFor = (client: string): string => {
    const own = client === defaultClient && token !== undefined ? token : `${client}-${token ?? ''}`;
    clients.set(own, client);
    return kubeconfigOf(url, namespace, client, own);
  };

  return {
    url,
    port: server.port,
    namespace,
    clock,
    /** For the client `default`. */
    kubeconfig: kubeconfigFor(defaultClient),
    kubeconfigFor,
    pods: new Pods(registry, store, clock, namespace),
    /** The version of the latest write of any object. */
    get resourceVersion() {
      return store.version;
    },
    get openWatches() {
      return watches.count;
    },
    /** For controllers. */
    internals: { store, registry },
    /** Closes the listening socket and every connection. */
    down: () => server.close(),
    /** Listens again on the same port. */
    up: () => server.open(),
    async stop() {
      registry.stop();
      await server.close();
    },
  };
}

/** As JSON, which is valid YAML. */
function kubeconfigOf(server: string, namespace: string, client: string, token: string): string {
  return JSON.stringify(
    {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'simulated', cluster: { server } }],
      users: [{ name: client, user: { token } }],
      contexts: [{ name: 'simulated', context: { cluster: 'simulated', user: client, namespace } }],
      'current-context': 'simulated',
    },
    null,
    2,
  );
}
