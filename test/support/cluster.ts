/** The simulated cluster with injected faults, a log of its requests, and the rules of a Role. */
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../src/clock.js';
import { ApiError, expired } from '../../src/cluster/simulator/api-error.js';
import {
  type Cluster as SimulatedCluster,
  type ClusterOptions as SimulatedOptions,
  startCluster as startSimulated,
} from '../../src/cluster/simulator/cluster.js';
import type { Verb } from '../../src/cluster/simulator/resources.js';
import type { AccessAttributes, RequestHooks } from '../../src/cluster/simulator/server.js';
import { onOwnPort } from './ports.js';

export interface ClusterOptions extends Omit<SimulatedOptions, 'hooks'> {
  /** The rules of a Role; other requests get 403. Default: everything is allowed. */
  rules?: readonly PolicyRule[];
}

export interface Cluster extends SimulatedCluster {
  faults: Faults;
  requests: RequestLog;
}

export async function startCluster({ rules, ...options }: ClusterOptions): Promise<Cluster> {
  const requests = new RequestLog();
  const faults = new Faults(options.clock, () => simulated);
  const intercept: RequestHooks['intercept'] = async (request, response, handle) => {
    const { client, verb, resource, namespace, name, message } = request;
    const { method = 'GET', url: path = '/', headers, socket } = message;
    const seen: SeenRequest = {
      ...{ client, verb, method, path, namespace, name },
      userAgent: headers['user-agent'] ?? '',
      resource: resource.plural,
      group: resource.group,
    };
    // Before the faults: the log contains failed requests too.
    requests.add(seen);
    const fault = await faults.apply(seen, response);
    if (response.destroyed) return undefined;
    if (fault?.reset || fault?.hang) return void socket.resetAndDestroy();
    if (fault?.retryAfterSeconds !== undefined) response.setHeader('retry-after', fault.retryAfterSeconds);
    if (fault?.status !== undefined) throw new ApiError(fault.status, 'a fault of the simulated cluster');
    if (rules && !isAllowed(rules, seen)) throw forbidden(seen);
    const answer = handle();
    if (fault?.lost) return void socket.resetAndDestroy();
    if (verb === 'watch') faults.addWatch(seen, response);
    return answer;
  };
  const hooks = { intercept, isAllowed: (asked: AccessAttributes) => !rules || isAllowed(rules, asked) };
  const simulated = await onOwnPort((port) => startSimulated({ port, ...options, hooks }));
  const { stop } = simulated;
  return Object.assign(simulated, {
    ...{ faults, requests },
    stop() {
      faults.clear();
      return stop();
    },
  });
}

/** A request for an object or a collection. */
export interface SeenRequest {
  /** The argument of `kubeconfigFor`; `anonymous` without a token. */
  readonly client: string;
  readonly userAgent: string;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly verb: Verb;
  /** In the plural: `pods`. */
  readonly resource: string;
  readonly group: string;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
}

/** Undefined fields match every request. */
export interface RequestFilter {
  client?: string;
  verb?: Verb;
  resource?: string;
  name?: string;
  match?: (request: SeenRequest) => boolean;
}

function matches(filter: RequestFilter, request: SeenRequest): boolean {
  const fields = ['client', 'verb', 'resource', 'name'] as const;
  const isEqual = fields.every((field) => filter[field] === undefined || filter[field] === request[field]);
  return isEqual && (filter.match?.(request) ?? true);
}

/** A rule of a Role, as in its manifest. */
export interface PolicyRule {
  apiGroups: readonly string[];
  resources: readonly string[];
  verbs: readonly string[];
  resourceNames?: readonly string[];
}

function isAllowed(rules: readonly PolicyRule[], { verb, resource, group, name }: AccessAttributes): boolean {
  const has = (list: readonly string[], value: string) => list.includes(value) || list.includes('*');
  return rules.some(
    ({ apiGroups, resources, verbs, resourceNames = [] }) =>
      has(apiGroups, group) &&
      has(resources, resource) &&
      has(verbs, verb) &&
      (resourceNames.length === 0 || (name !== undefined && resourceNames.includes(name))),
  );
}

/** The message of the API server. */
function forbidden({ client, verb, resource, group, namespace, name }: SeenRequest): ApiError {
  const object = name === undefined ? '' : ` "${name}"`;
  const where = namespace === undefined ? ' at the cluster scope' : ` in the namespace "${namespace}"`;
  return new ApiError(
    403,
    `${resource}${object} is forbidden: User "${client}" cannot ${verb} resource "${resource}" in API group "${group}"${where}`,
  );
}

const maxLogEntries = 10_000;

class RequestLog {
  #entries: SeenRequest[] = [];
  readonly #used = new Set<string>();

  add(request: SeenRequest): void {
    this.#used.add(`${request.verb} ${request.resource}`);
    // Drops half of the log at once: shifting 10,000 entries for every request would be slow.
    if (this.#entries.length >= maxLogEntries) this.#entries = this.#entries.slice(maxLogEntries / 2);
    this.#entries.push(request);
  }

  /** The latest requests, oldest first. */
  list(filter: RequestFilter = {}): SeenRequest[] {
    return this.#entries.filter((request) => matches(filter, request));
  }

  count(filter: RequestFilter = {}): number {
    return this.list(filter).length;
  }

  /** All verbs and resources since the start, sorted: `['create leases', 'list pods', ...]`. */
  used(): string[] {
    return [...this.#used].sort();
  }
}

/** One of `status`, `reset`, `hang`, `lost`, or only a delay. */
export interface RequestFault extends RequestFilter {
  /** The answer is this HTTP status with its Status body. */
  status?: number;
  retryAfterSeconds?: number;
  /** The connection breaks; the request has no effect. */
  reset?: boolean;
  /** No answer while the fault lasts, then the connection breaks; the request has no effect. */
  hang?: boolean;
  /** The request takes effect but its answer is lost. A watch breaks right after its start. */
  lost?: boolean;
  /** A delay before the request is handled. */
  delayMs?: number;
  /** The fault ends after so many requests. */
  times?: number;
}

interface ActiveFault {
  readonly fault: RequestFault;
  left: number;
  readonly held: Set<() => void>;
}

interface OpenWatch {
  readonly request: SeenRequest;
  readonly response: ServerResponse;
}

/** Each fault lasts until the returned function ends it, until it has happened `times` times, or until `clear`. */
class Faults {
  readonly #clock: Clock;
  readonly #cluster: () => SimulatedCluster;
  readonly #active = new Set<ActiveFault>();
  readonly #watches = new Set<OpenWatch>();

  constructor(clock: Clock, cluster: () => SimulatedCluster) {
    this.#clock = clock;
    this.#cluster = cluster;
  }

  failRequests(fault: RequestFault): () => void {
    const active: ActiveFault = { fault, left: fault.times ?? Number.POSITIVE_INFINITY, held: new Set() };
    this.#active.add(active);
    return () => this.#end(active);
  }

  /** Breaks the connections of open watches. Returns their number. */
  cutWatches(filter: RequestFilter = {}): number {
    return this.#matching(filter).map(({ response }) => response.destroy()).length;
  }

  /** Ends open watches as their timeout does. Returns their number. */
  endWatches(filter: RequestFilter = {}): number {
    return this.#matching(filter).map(({ response }) => response.end()).length;
  }

  /**
   * Keeps open watches open without any event, bookmark or end. Watches opened later are not affected. The returned
   * function resumes them at their position.
   */
  silenceWatches(filter: RequestFilter = {}): () => void {
    const resumes = this.#matching(filter).map(({ response }) => silence(response));
    return () => {
      for (const resume of resumes) resume();
    };
  }

  /**
   * Expires every version and continue token that a client holds. With `tellWatches` open watches get the ERROR event
   * and end; without it they continue.
   */
  expireHistory({ tellWatches = false }: { tellWatches?: boolean } = {}): void {
    const { store } = this.#cluster().internals;
    const before = store.version;
    store.expireHistory();
    if (!tellWatches) return;
    const error = JSON.stringify(expired(before, store.version).body);
    for (const { response } of this.#watches) response.end(`{"type":"ERROR","object":${error}}\n`);
  }

  /**
   * Separates one client from the API server: its watches and requests break (`reset`) or get no answer (`hang`, like
   * behind a firewall that drops packets). The returned function ends it.
   */
  isolate(client: string, how: 'reset' | 'hang' = 'reset'): () => void {
    const end = this.failRequests(how === 'reset' ? { client, reset: true } : { client, hang: true });
    if (how === 'reset') {
      this.cutWatches({ client });
      return end;
    }
    this.silenceWatches({ client });
    // Dropped packets do not arrive later: the connections are dead.
    return () => {
      end();
      this.cutWatches({ client });
    };
  }

  /** Ends all request faults. */
  clear(): void {
    for (const active of this.#active) this.#end(active);
  }

  addWatch(request: SeenRequest, response: ServerResponse): void {
    const watch = { request, response };
    this.#watches.add(watch);
    response.once('close', () => this.#watches.delete(watch));
  }

  /** Returns the fault for this request, after its delay and while it hangs. */
  async apply(request: SeenRequest, response: ServerResponse): Promise<RequestFault | undefined> {
    const active = [...this.#active].find(({ fault, left }) => left > 0 && matches(fault, request));
    if (!active) return undefined;
    active.left -= 1;
    const { fault, held } = active;
    const closed = new AbortController();
    response.once('close', () => closed.abort());
    if (fault.delayMs !== undefined) await this.#clock.sleep(fault.delayMs, closed.signal);
    if (fault.hang) {
      await new Promise<void>((resolve) => {
        held.add(resolve);
        closed.signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
    return fault;
  }

  #end(active: ActiveFault): void {
    this.#active.delete(active);
    for (const release of active.held) release();
    active.held.clear();
  }

  #matching(filter: RequestFilter): OpenWatch[] {
    return [...this.#watches].filter(({ request }) => matches(filter, request));
  }
}

/** Holds back what is written to a response, as if its client did not read, and ignores its end. */
function silence(response: ServerResponse): () => void {
  const { write, end } = response;
  const held: unknown[] = [];
  response.write = (chunk: unknown) => {
    held.push(chunk);
    return false;
  };
  response.end = () => response;
  return () => {
    Object.assign(response, { write, end });
    for (const chunk of held) response.write(chunk);
    response.emit('drain');
  };
}
