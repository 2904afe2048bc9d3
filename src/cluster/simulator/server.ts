/**
 * The HTTP server of the simulated API. Every error is a Status body; a bug of the simulator is a 500 with its message.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../clock.js';
import { isPlainObject } from '../../config/tiers.js';
import { messageOf } from '../../errors.js';
import { ApiError, badRequest, invalid } from './api-error.js';
import { countOf, listOf } from './lists.js';
import type { Draft } from './objects.js';
import type { Registry } from './registry.js';
import { discoveryOf, type Target, targetOf, type Verb, verbOf } from './resources.js';
import { selectorOf } from './selectors.js';
import type { Store } from './store.js';
import type { Watches } from './watches.js';

export interface ApiRequest extends Target {
  /** The argument of `kubeconfigFor`; `anonymous` without a token. */
  readonly client: string;
  readonly verb: Verb;
  readonly message: IncomingMessage;
}

/** Called around requests; everything is allowed without it. */
export interface RequestHooks {
  /** Calls `handle`, which returns undefined for a watch, or answers in its place. */
  intercept(
    request: ApiRequest,
    response: ServerResponse,
    handle: () => Answer | undefined,
  ): Promise<Answer | undefined>;
  /** The answer to a SelfSubjectAccessReview. */
  isAllowed(attributes: AccessAttributes): boolean;
}

export interface AccessAttributes {
  verb: string;
  group: string;
  resource: string;
  name?: string | undefined;
}

export interface ServerParts {
  clock: Clock;
  store: Store;
  registry: Registry;
  watches: Watches;
  maxPage: number;
  /** Returns the name of the client, or throws 401. */
  clientOf(authorization: string | undefined): string;
  hooks: RequestHooks | undefined;
}

export interface Answer {
  code: number;
  body: string;
}

const reviews = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
const maxBodyBytes = 3 * 1024 * 1024;
/** The real server ends a watch after 30 to 60 minutes when the client sets no timeout. */
const watchMs = 30 * 60_000;

export class ApiServer {
  port = 0;
  readonly #server = createServer((request, response) => void this.#serve(request, response));

  constructor(private readonly parts: ServerParts) {
    // Longer than any pause of a client: closing an idle connection can fail a request that is just sent.
    this.#server.keepAliveTimeout = 600_000;
  }

  async open(port = this.port): Promise<void> {
    if (this.#server.listening) return;
    await once(this.#server.listen(port, '127.0.0.1'), 'listening');
    this.port = (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server.close(), 'close');
    this.#server.closeAllConnections();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('error', () => undefined);
    const { clientOf, hooks } = this.parts;
    let answer: Answer | undefined;
    try {
      const url = new URL(request.url ?? '/', 'http://cluster');
      const client = clientOf(request.headers.authorization);
      const target = targetOf(url.pathname);
      if (target) {
        const isWatch = isTrue(url.searchParams.get('watch'));
        const verb = verbOf(request.method ?? 'GET', target.name !== undefined, isWatch);
        if (!verb) throw methodNotAllowed();
        const body = await textOf(request);
        const handle = () => this.#answer(verb, target, url.searchParams, body, response);
        answer = hooks
          ? await hooks.intercept({ ...target, client, verb, message: request }, response, handle)
          : handle();
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
    verb: Verb,
    target: Target,
    query: URLSearchParams,
    text: string,
    response: ServerResponse,
  ): Answer | undefined {
    const { store, registry, maxPage } = this.parts;
    const { resource, namespace, name = '' } = target;
    if (verb === 'list') return { code: 200, body: listOf(store, resource, namespace, query, maxPage) };
    if (verb === 'watch') {
      this.#watch(target, query, response);
      return undefined;
    }
    const isAllowedHere = verb === 'get' || resource.validate || (verb === 'delete' && resource.isGraceful);
    if (namespace === undefined || !isAllowedHere) throw methodNotAllowed();
    switch (verb) {
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

  #watch({ resource, namespace }: Target, query: URLSearchParams, response: ServerResponse): void {
    const { watches, clock } = this.parts;
    watches.start(response, {
      resource,
      namespace,
      selector: selectorOf(query.get('labelSelector') ?? '', query.get('fieldSelector') ?? ''),
      since: countOf(query, 'resourceVersion') || undefined,
      bookmarks: isTrue(query.get('allowWatchBookmarks')),
      timeoutMs: countOf(query, 'timeoutSeconds') * 1000 || watchMs * (1 + clock.random()),
    });
  }

  /** SelfSubjectAccessReview: every authenticated client may send it. */
  #review(text: string): Answer {
    const review = recordOf(text);
    const { resourceAttributes } = (review.spec ?? {}) as { resourceAttributes?: Record<string, string> };
    if (!resourceAttributes)
      throw invalid(String(review.kind), '', 'spec.resourceAttributes', 'Required value');
    const { verb = '', group = '', resource = '', name } = resourceAttributes;
    const allowed = this.parts.hooks?.isAllowed({ verb, group, resource, name }) ?? true;
    return { code: 201, body: JSON.stringify({ ...review, status: { allowed } }) };
  }

  #plain(method: string, path: string): Answer {
    const text = discoveryOf(path, `127.0.0.1:${this.port}`);
    if (text === undefined) throw new ApiError(404, 'the server could not find the requested resource');
    if (method !== 'GET' && method !== 'HEAD') throw methodNotAllowed();
    return { code: 200, body: text };
  }
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
  if (!isPlainObject(value)) throw badRequest('the object provided is unrecognized: not an object');
  return value;
}

function draftOf(text: string): Draft {
  const draft = recordOf(text);
  for (const field of ['metadata', 'spec', 'status']) {
    if (draft[field] != null && !isPlainObject(draft[field])) throw badRequest(`${field}: not an object`);
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
  return { code: apiError.code, body: JSON.stringify(apiError.body) };
}

function send(response: ServerResponse, { code, body }: Answer): void {
  if (response.headersSent || response.destroyed) return;
  const bytes = Buffer.from(body);
  response.writeHead(code, {
    'content-type': 'application/json',
    'content-length': bytes.length,
    // The rest of the body would be read as the next request.
    ...(code === 413 ? { connection: 'close' } : {}),
  });
  response.end(bytes);
}
