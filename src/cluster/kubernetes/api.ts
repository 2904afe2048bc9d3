/**
 * Requests to the Kubernetes API; each ends with a response, an error or its deadline.
 *
 * The requests and the informer of `@kubernetes/client-node` are not used: its requests have no deadline, and its informer
 * ends at the first broken socket.
 */

import { readFile } from 'node:fs/promises';
import * as http from 'node:http';
import * as https from 'node:https';
import { text } from 'node:stream/consumers';
import { StringDecoder } from 'node:string_decoder';
import { type Clock, Deadline, unlessAborted } from '../../clock.js';
import { ConfigError, messageOf } from '../../errors.js';
import { userAgent } from '../../version.js';
import { ItemReader } from './item-reader.js';
import { type Access, type AccessConfig, findAccess } from './kubeconfig.js';

/**
 * `status` is undefined without a complete response. `reason` is that of the API, if it gave one; without a response it is
 * `Timeout` or `Unreachable`, and `TooLarge` for one that was not read to its end.
 */
export class KubeError extends Error {
  override readonly name = 'KubeError';
  constructor(
    message: string,
    readonly status?: number,
    readonly reason?: string,
    readonly retryAfterMs?: number,
  ) {
    super(message);
  }

  /** The reason, if a restart of the server or a broken network explains the error. */
  get interruption(): 'timeout' | 'connection' | 'server_error' | undefined {
    if (this.status !== undefined) {
      return this.status === 429 || this.status >= 500 ? 'server_error' : undefined;
    }
    if (this.reason === 'Timeout') return 'timeout';
    return this.reason === 'Unreachable' ? 'connection' : undefined;
  }
}

export interface KubeRequest {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** From the root: `/api/v1/namespaces/...`. */
  path: string;
  query?: Readonly<Record<string, string>>;
  body?: unknown;
  /** For the whole response; for a stream the longest pause, also before its first byte. */
  timeoutMs: number;
  signal?: AbortSignal;
}

/** What leadership and the pod source need of the API: a value, a list, a stream. */
export interface KubeApi {
  json<T>(request: KubeRequest): Promise<T>;
  /** Each item of a list as it arrives, then the list without its items. */
  items<T>(request: KubeRequest, onItem: (item: unknown) => void): Promise<T>;
  /** The lines of a stream as they arrive; ends with it. */
  lines(request: KubeRequest): AsyncGenerator<string>;
  close(): void;
}

/** A page of 500 large pods is about 5 MB. */
const maxResponseBytes = 64 * 1024 * 1024;
const maxLineLength = 16 * 1024 * 1024;
const maxErrorLength = 2_000;

export async function connectKubernetes(config: AccessConfig, clock: Clock): Promise<KubeApi> {
  try {
    return new HttpKubeApi(await findAccess(config), clock);
  } catch (error) {
    // Errors of YAML files have many lines; the first is enough.
    const place = config.kubeconfig ? 'KUBECONFIG' : 'the default kubeconfig';
    throw new ConfigError([`${place} cannot be used: ${messageOf(error).split('\n')[0]}`]);
  }
}

class HttpKubeApi implements KubeApi {
  readonly #access: Access;
  readonly #clock: Clock;
  readonly #server: URL;
  readonly #plain = new http.Agent({ keepAlive: true });
  readonly #secure = new https.Agent({ keepAlive: true });

  constructor(access: Access, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
    this.#server = new URL(access.server);
  }

  json<T>(request: KubeRequest): Promise<T> {
    return this.#answer(request, async (response) => JSON.parse(await text(limited(response, request))) as T);
  }

  items<T>(request: KubeRequest, onItem: (item: unknown) => void): Promise<T> {
    return this.#answer(request, async (response) => {
      const reader = new ItemReader(onItem);
      for await (const chunk of limited(response, request)) reader.push(chunk);
      return reader.end() as T;
    });
  }

  async #answer<T>(request: KubeRequest, read: (response: http.IncomingMessage) => Promise<T>): Promise<T> {
    const deadline = this.#deadline(request);
    try {
      return await read(await this.#send(request, deadline.signal));
    } catch (error) {
      throw explain(error, request, deadline);
    } finally {
      deadline.end();
    }
  }

  async *lines(request: KubeRequest): AsyncGenerator<string> {
    const deadline = this.#deadline(request);
    try {
      const response = await this.#send(request, deadline.signal);
      const decoder = new StringDecoder('utf8');
      let rest = '';
      // Leaving this loop closes the connection.
      for await (const chunk of response as AsyncIterable<Buffer>) {
        const [first = '', ...others] = decoder.write(chunk).split('\n');
        rest += first;
        if (rest.length > maxLineLength)
          throw new KubeError(`the watch sent a line of more than ${maxLineLength} characters`);
        // The time of the consumer does not count.
        deadline.pause();
        for (const next of others) {
          if (rest.trim() !== '') yield rest;
          rest = next;
        }
        deadline.restart();
      }
    } catch (error) {
      throw explain(error, request, deadline);
    } finally {
      deadline.end();
    }
  }

  close(): void {
    this.#plain.destroy();
    this.#secure.destroy();
  }

  /** Rejects for an error status. After a 401 the request is repeated once if the token file has changed. */
  async #send(request: KubeRequest, signal: AbortSignal): Promise<http.IncomingMessage> {
    const token = await this.#token(signal);
    let response = await this.#ask(request, token, signal);
    if (response.statusCode === 401) {
      const newToken = await this.#token(signal);
      if (newToken !== token) {
        response.destroy();
        response = await this.#ask(request, newToken, signal);
      }
    }
    const status = response.statusCode ?? 0;
    if (status >= 200 && status < 300) return response;
    throw errorOf(request, status, response.headers, await startOf(response));
  }

  async #token(signal: AbortSignal): Promise<string | undefined> {
    const { tokenFile } = this.#access;
    if (tokenFile === undefined) return undefined;
    return (await readFile(tokenFile, { encoding: 'utf8', signal })).trim();
  }

  async #ask(
    { method = 'GET', path, query, body }: KubeRequest,
    token: string | undefined,
    signal: AbortSignal,
  ): Promise<http.IncomingMessage> {
    const headers = {
      accept: 'application/json',
      'user-agent': userAgent,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
    const options: https.RequestOptions = { method, signal, headers };
    // Credentials may come from a program, which may hang.
    await unlessAborted(this.#access.apply(options), signal);
    signal.throwIfAborted();
    const isSecure = this.#server.protocol === 'https:';
    // The library creates an agent, and so a TLS handshake, per request; these two keep their connections.
    if (!this.#access.isProxied) options.agent = isSecure ? this.#secure : this.#plain;
    const payload = body === undefined ? undefined : JSON.stringify(body);
    if (payload !== undefined) {
      options.headers = {
        ...(options.headers as http.OutgoingHttpHeaders),
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(payload),
      };
    }
    const base = this.#server.pathname.replace(/\/$/, '');
    const url = new URL(`${base}${path}?${new URLSearchParams(query)}`.replace(/\?$/, ''), this.#server);
    return new Promise<http.IncomingMessage>((resolve, reject) => {
      const sent = (isSecure ? https : http).request(url, options, resolve);
      sent.once('error', reject);
      // A 101 closes the request with neither an error nor a response.
      sent.once('close', () => reject(new Error('connection closed without a response')));
      sent.end(payload);
    });
  }

  /** One timer for the whole request; a stream restarts it with every chunk. */
  #deadline(request: KubeRequest): Deadline {
    const { timeoutMs, signal } = request;
    const message = `no response from the Kubernetes API for ${Math.round(timeoutMs)} ms (${nameOf(request)})`;
    return new Deadline(this.#clock, timeoutMs, () => new KubeError(message, undefined, 'Timeout'), signal);
  }
}

const nameOf = ({ method = 'GET', path }: KubeRequest) => `${method} ${path}`;

function explain(error: unknown, request: KubeRequest, { signal }: Deadline): Error {
  if (error instanceof KubeError) return error;
  if (signal.reason instanceof KubeError) return signal.reason;
  const what = nameOf(request);
  if (request.signal?.aborted) return new KubeError(`aborted (${what})`);
  const why = `cannot reach the Kubernetes API: ${messageOf(error)} (${what})`;
  return new KubeError(why, undefined, 'Unreachable');
}

/** The response in chunks; fails beyond the limit. */
async function* limited(response: http.IncomingMessage, request: KubeRequest): AsyncGenerator<Buffer> {
  const mebibytes = maxResponseBytes / 1024 / 1024;
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxResponseBytes) {
      const message = `the response to ${nameOf(request)} is larger than ${mebibytes} MiB`;
      throw new KubeError(message, undefined, 'TooLarge');
    }
    yield chunk;
  }
}

/** Reads the start of an error response. */
async function startOf(response: http.IncomingMessage): Promise<string> {
  let start = '';
  for await (const chunk of response.setEncoding('utf8') as AsyncIterable<string>) {
    start += chunk;
    if (start.length > maxErrorLength) break;
  }
  return start.slice(0, maxErrorLength);
}

function errorOf(
  request: KubeRequest,
  status: number,
  headers: http.IncomingHttpHeaders,
  text: string,
): KubeError {
  let answer: { reason?: unknown; message?: unknown } = {};
  try {
    answer = (JSON.parse(text) ?? {}) as typeof answer;
  } catch {
    // A proxy in front of the API server responded: its text is the message.
  }
  const message = typeof answer.message === 'string' ? answer.message : text.slice(0, 200);
  const seconds = Number(headers['retry-after']);
  return new KubeError(
    `the Kubernetes API answered ${status} to ${nameOf(request)}: ${message}`,
    status,
    typeof answer.reason === 'string' ? answer.reason : undefined,
    Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : undefined,
  );
}
