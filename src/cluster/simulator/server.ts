/**
 * The HTTP server of the simulated API: authentication, faults, RBAC, then the request itself. Every error is a Status
 * body; a bug of the simulator is a 500 with its message.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../clock.js';
import { messageOf } from '../../errors.js';
import { ApiError, badRequest, invalid } from './api-error.js';
import { discoveryOf } from './discovery.js';
import type { Faults, RequestFault } from './faults.js';
import { countOf, listOf } from './lists.js';
import { type Draft, isRecord } from './objects.js';
import type { Registry } from './registry.js';
import {
  authorize,
  isAllowed,
  type PolicyRule,
  type RequestLog,
  type SeenRequest,
  type Target,
  targetOf,
  verbOf,
} from './requests.js';
import { selectorOf } from './selectors.js';
import type { Store } from './store.js';
import type { Watches } from './watches.js';

export interface ServerParts {
  clock: Clock;
  store: Store;
  registry: Registry;
  watches: Watches;
  requests: RequestLog;
  faults: Faults;
  maxPage: number;
  /** Returns the name of the client, or throws 401. */
  clientOf(authorization: string | undefined): string;
  rules: readonly PolicyRule[] | undefined;
}

interface Answer {
  code: number;
  body: string;
  retryAfterSeconds?: number;
}

const reviews = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
const maxBodyBytes = 3 * 1024 * 1024;
/** The real server ends a watch after 30 to 60 minutes when the client sets no timeout. */
const watchMs = 30 * 60_000;

export class ApiServer {
  readonly #parts: ServerParts;
  readonly #server: Server;
  #port = 0;

  constructor(parts: ServerParts) {
    this.#parts = parts;
    this.#server = createServer((request, response) => void this.#serve(request, response));
    // Longer than any pause of a client: closing an idle connection can fail a request that is just sent.
    this.#server.keepAliveTimeout = 600_000;
  }

  get port(): number {
    return this.#port;
  }

  async open(port = this.#port): Promise<void> {
    if (this.#server.listening) return;
    await once(this.#server.listen(port, '127.0.0.1'), 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server.close(), 'close');
    this.#server.closeAllConnections();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('error', () => undefined);
    let fault: RequestFault | undefined;
    let answer: Answer | undefined;
    try {
      const url = new URL(request.url ?? '/', 'http://cluster');
      const client = this.#parts.clientOf(request.headers.authorization);
      const target = targetOf(url.pathname);
      if (target) {
        const seen = seenOf(request, url, target, client);
        const closed = new AbortController();
        response.once('close', () => closed.abort());
        // Before the faults: the log contains failed requests too.
        this.#parts.requests.add(seen);
        const body = await textOf(request);
        fault = await this.#parts.faults.apply(seen, closed.signal);
        if (response.destroyed) return;
        if (fault?.reset || fault?.hang) return void request.socket.resetAndDestroy();
        if (fault?.status !== undefined) {
          const { status, retryAfterSeconds } = fault;
          const extra = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
          throw new ApiError(status, 'a fault of the simulated cluster', extra);
        }
        if (this.#parts.rules) authorize(this.#parts.rules, seen);
        answer = this.#answer(seen, target, url.searchParams, body, response);
        if (fault?.lost) return void request.socket.resetAndDestroy();
      } else if (request.method === 'POST' && url.pathname === reviews) {
        answer = this.#review(await textOf(request));
      } else answer = this.#plain(request.method ?? 'GET', url.pathname);
    } catch (error) {
      answer = failureOf(error);
    }
    if (answer) send(response, answer);
  }

  /** Returns undefined for a watch: its response stays open. */
  #answer(
    seen: SeenRequest,
    target: Target,
    query: URLSearchParams,
    text: string,
    response: ServerResponse,
  ): Answer | undefined {
    const { store, registry, maxPage } = this.#parts;
    const { resource, namespace, name = '' } = target;
    if (seen.verb === 'list') return { code: 200, body: listOf(store, resource, namespace, query, maxPage) };
    if (seen.verb === 'watch') {
      this.#watch(seen, target, query, response);
      return undefined;
    }
    const isAllowedHere =
      seen.verb === 'get' || resource.validate || (seen.verb === 'delete' && resource.isGraceful);
    if (namespace === undefined || !isAllowedHere) throw methodNotAllowed();
    switch (seen.verb) {
      case 'get':
        return { code: 200, body: registry.get(resource, namespace, name).json };
      case 'create':
        return { code: 201, body: registry.create(resource, namespace, draftOf(text)).json };
      case 'update': {
        const existed = store.find(resource, namespace, name) !== undefined;
        const { json } = registry.update(resource, namespace, name, draftOf(text));
        return { code: existed ? 200 : 201, body: json };
      }
      case 'delete': {
        const { uid, json } = registry.delete(resource, namespace, name, graceOf(query, text));
        const details = { name, group: resource.group, kind: resource.plural, uid };
        const success = { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', details };
        return { code: 200, body: resource.isGraceful ? json : JSON.stringify(success) };
      }
    }
  }

  #watch(
    seen: SeenRequest,
    { resource, namespace }: Target,
    query: URLSearchParams,
    response: ServerResponse,
  ): void {
    const { watches, clock } = this.#parts;
    watches.start(seen, response, {
      resource,
      namespace,
      selector: selectorOf(query.get('labelSelector') ?? '', query.get('fieldSelector') ?? ''),
      since: countOf(query, 'resourceVersion') || undefined,
      bookmarks: isTrue(query.get('allowWatchBookmarks')),
      timeoutMs: countOf(query, 'timeoutSeconds') * 1000 || watchMs * (1 + clock.random()),
    });
  }

  /** SelfSubjectAccessReview: every authenticated client may send it; the request log does not contain it. */
  #review(text: string): Answer {
    const review = recordOf(text);
    const { resourceAttributes } = (review.spec ?? {}) as { resourceAttributes?: Record<string, string> };
    if (!resourceAttributes)
      throw invalid(String(review.kind), '', 'spec.resourceAttributes', 'Required value');
    const { verb = '', group = '', resource = '', name } = resourceAttributes;
    const { rules } = this.#parts;
    const allowed = !rules || isAllowed(rules, { verb, group, resource, name });
    return { code: 201, body: JSON.stringify({ ...review, status: { allowed } }) };
  }

  #plain(method: string, path: string): Answer {
    const text = discoveryOf(path, `127.0.0.1:${this.#port}`);
    if (text === undefined) throw new ApiError(404, 'the server could not find the requested resource');
    if (method !== 'GET' && method !== 'HEAD') throw methodNotAllowed();
    return { code: 200, body: text };
  }
}

function seenOf(request: IncomingMessage, url: URL, target: Target, client: string): SeenRequest {
  const { method = 'GET', headers } = request;
  const { resource, namespace, name } = target;
  const verb = verbOf(method, name !== undefined, isTrue(url.searchParams.get('watch')));
  if (!verb) throw methodNotAllowed();
  return {
    client,
    userAgent: headers['user-agent'] ?? '',
    method,
    path: url.pathname + url.search,
    verb,
    resource: resource.plural,
    group: resource.group,
    namespace,
    name,
  };
}

const methodNotAllowed = () =>
  new ApiError(405, 'the server does not allow this method on the requested resource');

const isTrue = (text: string | null) => text === 'true' || text === '1';

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBodyBytes) throw new ApiError(413, `limit is ${maxBodyBytes}`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function recordOf(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw badRequest(`the object provided is unrecognized: ${messageOf(error)}`);
  }
  if (!isRecord(value)) throw badRequest('the object provided is unrecognized: not an object');
  return value;
}

function draftOf(text: string): Draft {
  const draft = recordOf(text);
  for (const field of ['metadata', 'spec', 'status']) {
    if (draft[field] != null && !isRecord(draft[field])) throw badRequest(`${field}: not an object`);
  }
  return draft as Draft;
}

/** The grace period of a deletion in milliseconds; undefined: the one of the pod. */
function graceOf(query: URLSearchParams, text: string): number | undefined {
  const body = text === '' ? {} : recordOf(text);
  const seconds = query.has('gracePeriodSeconds')
    ? countOf(query, 'gracePeriodSeconds')
    : body.gracePeriodSeconds;
  return typeof seconds === 'number' ? seconds * 1000 : undefined;
}

function failureOf(error: unknown): Answer {
  const apiError = error instanceof ApiError ? error : new ApiError(500, `Internal error occurred: ${error}`);
  const { retryAfterSeconds } = apiError.extra;
  return {
    code: apiError.code,
    body: JSON.stringify(apiError.body),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  };
}

function send(response: ServerResponse, { code, body, retryAfterSeconds }: Answer): void {
  if (response.headersSent || response.destroyed) return;
  const bytes = Buffer.from(body);
  response.writeHead(code, {
    'content-type': 'application/json',
    'content-length': bytes.length,
    ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
    // The rest of the body would be read as the next request.
    ...(code === 413 ? { connection: 'close' } : {}),
  });
  response.end(bytes);
}
