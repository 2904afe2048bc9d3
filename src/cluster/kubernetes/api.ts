/**
 * Requests to the Kubernetes API, each with an end: an answer, an error, or its deadline.
 *
 * Where the API server is and who we are comes from `@kubernetes/client-node`, as kubectl finds it: `KUBECONFIG`,
 * else `~/.kube/config`, else the service account of the pod we run in. Token files, of a service account or a kubeconfig,
 * are read for every request: tokens rotate, and the library keeps one for a minute. Its requests and its informer are not used: they have no deadline, and the informer ends at the first broken
 * socket.
 */
import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import * as http from 'node:http';
import * as https from 'node:https';
import { homedir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import type { KubeConfig } from '@kubernetes/client-node';
import type { Clock } from '../../clock.js';
import { ConfigError, messageOf } from '../../errors.js';
import { version } from '../../version.js';
import { ItemReader } from './item-reader.js';

/**
 * `status` is undefined when no answer came; `reason` is the API's word for the error, if it gave one. Without an answer
 * it is `Timeout` or `Unreachable`.
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

  /** Why the connection was cut off, where restarts and breaks of the network explain it. */
  get interruption(): 'timeout' | 'connection' | 'server_error' | undefined {
    if (this.status !== undefined) {
      return this.status === 429 || this.status >= 500 ? 'server_error' : undefined;
    }
    if (this.reason === 'Timeout') return 'timeout';
    return this.reason === 'Unreachable' ? 'connection' : undefined;
  }
}

export interface KubeRequest {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** From the root: `/api/v1/namespaces/...`. */
  path: string;
  query?: Readonly<Record<string, string>>;
  body?: unknown;
  /** For the whole answer; for a stream the longest silence, its beginning included. */
  timeoutMs: number;
  signal?: AbortSignal;
}

/** What leadership and the pod source need of the API; one way to ask for a value, one for a list, one for a stream. */
export interface KubeApi {
  json<T>(request: KubeRequest): Promise<T>;
  /** Each item of a list as it arrives, then the list without its items. */
  items<T>(request: KubeRequest, onItem: (item: unknown) => void): Promise<T>;
  /** The lines of a stream as they come; ends with it. */
  lines(request: KubeRequest): AsyncGenerator<string>;
  close(): void;
}

/** A page of 500 large pods is about 5 MB. */
const longestAnswer = 64 * 1024 * 1024;
const longestLine = 16 * 1024 * 1024;
const longestError = 2_000;

/** `kubeconfig` is the value of KUBECONFIG: files, as kubectl separates them. Undefined: the other two places. */
export async function connectKubernetes(kubeconfig: string | undefined, clock: Clock): Promise<KubeApi> {
  // 80 MB of memory that only those pay who use it.
  const library = await import('@kubernetes/client-node');
  try {
    const config = load(library, (kubeconfig ?? '').split(delimiter).filter(Boolean));
    const cluster = config.getCurrentCluster();
    if (!cluster) {
      throw new Error('it has no current context with a cluster (`kubectl config use-context` sets one)');
    }
    // Without TLS there is nothing to verify; the library refuses to talk to such a server otherwise, kubectl does not.
    if (cluster.server.startsWith('http:')) Object.assign(cluster, { skipTLSVerify: true });
    return new HttpKubeApi(config, cluster.server, clock);
  } catch (error) {
    // What is wrong with a YAML file is told in many lines, of which the first says it.
    const place = kubeconfig
      ? 'KUBECONFIG'
      : 'what kubectl would use (~/.kube/config, or the service account)';
    throw new ConfigError([`${place} cannot be used: ${messageOf(error).split('\n')[0]}`]);
  }
}

type Library = typeof import('@kubernetes/client-node');

/** As kubectl merges files: the first that has a name or sets the context wins, and missing ones are passed over. */
function load(library: Library, named: string[]): KubeConfig {
  const config = new library.KubeConfig();
  const ownFile = join(homedir(), '.kube', 'config');
  const files = named.length === 0 && existsSync(ownFile) ? [ownFile] : named;
  if (files.length === 0) {
    config.loadFromDefault();
    // The library's last resort, where it has found nothing: very likely ourselves.
    if (
      config.getCurrentCluster()?.server === 'http://localhost:8080' &&
      config.getCurrentUser()?.name === 'user'
    )
      throw new Error(
        'there is neither; set KUBECONFIG, or POD_SOURCE=static or registered to run without Kubernetes',
      );
    return config;
  }
  const present = files.filter(existsSync);
  if (present.length === 0) throw new Error(`there is no ${files.join(' and no ')}`);
  const parts = present.map((file) => {
    const part = new library.KubeConfig();
    part.loadFromFile(file);
    nameTokenFiles(library, part, file);
    return part;
  });
  const firsts = <T extends { name: string }>(all: readonly T[]) =>
    all.filter(({ name }, i) => all.findIndex((other) => other.name === name) === i);
  config.loadFromOptions({
    clusters: firsts(parts.flatMap(({ clusters }) => clusters)),
    users: firsts(parts.flatMap(({ users }) => users)),
    contexts: firsts(parts.flatMap(({ contexts }) => contexts)),
    currentContext: parts.find(({ currentContext }) => currentContext)?.currentContext,
  });
  return config;
}

/** The library does not know `tokenFile` of a user, which wins over `token`; it becomes what a service account has. */
function nameTokenFiles({ loadYaml }: Library, config: KubeConfig, file: string): void {
  const { users } = loadYaml<{ users?: { name?: unknown; user?: { tokenFile?: unknown } | null }[] }>(
    readFileSync(file, 'utf8'),
  );
  for (const user of config.users) {
    const tokenFile = users?.find(({ name }) => name === user.name)?.user?.tokenFile;
    if (typeof tokenFile !== 'string' || tokenFile === '') continue;
    const config = { tokenFile: resolve(dirname(file), tokenFile) };
    Object.assign(user, { authProvider: { name: 'tokenFile', config }, token: undefined });
  }
}

class HttpKubeApi implements KubeApi {
  readonly #config: KubeConfig;
  readonly #tokenFile: string | undefined;
  readonly #clock: Clock;
  readonly #server: URL;
  // The library makes an agent per request, and so a TLS handshake; these two keep their connections.
  readonly #plain = new http.Agent({ keepAlive: true });
  readonly #secure = new https.Agent({ keepAlive: true });

  constructor(config: KubeConfig, server: string, clock: Clock) {
    this.#config = config;
    const user = config.getCurrentUser();
    this.#tokenFile = user?.authProvider?.config?.tokenFile as string | undefined;
    if (user && this.#tokenFile !== undefined) Object.assign(user, { authProvider: undefined });
    this.#clock = clock;
    this.#server = new URL(server);
  }

  json<T>(request: KubeRequest): Promise<T> {
    return this.#answer(request, async (response) => JSON.parse(await readAll(response, longestAnswer)) as T);
  }

  items<T>(request: KubeRequest, onItem: (item: unknown) => void): Promise<T> {
    return this.#answer(request, async (response) => {
      const reader = new ItemReader(onItem);
      let size = 0;
      for await (const chunk of response as AsyncIterable<Buffer>) {
        size += chunk.length;
        if (size > longestAnswer) throw new Error(`an answer of more than ${longestAnswer} bytes`);
        reader.push(chunk);
      }
      return reader.end() as T;
    });
  }

  async #answer<T>(request: KubeRequest, read: (response: http.IncomingMessage) => Promise<T>): Promise<T> {
    const limit = this.#deadline(request);
    try {
      return await read(await this.#send(request, limit.signal));
    } catch (error) {
      throw limit.explain(error);
    } finally {
      limit.cancel();
    }
  }

  async *lines(request: KubeRequest): AsyncGenerator<string> {
    const limit = this.#deadline(request);
    try {
      const response = await this.#send(request, limit.signal);
      const decoder = new StringDecoder('utf8');
      let rest = '';
      // Leaving this loop, whatever the reason, closes the connection.
      for await (const chunk of response as AsyncIterable<Buffer>) {
        const [first = '', ...others] = decoder.write(chunk).split('\n');
        rest += first;
        if (rest.length > longestLine)
          throw new KubeError(`the watch sent a line of more than ${longestLine} characters`);
        // The time that the reader takes is no silence of the server.
        limit.cancel();
        for (const next of others) {
          if (rest.trim() !== '') yield rest;
          rest = next;
        }
        limit.restart();
      }
    } catch (error) {
      throw limit.explain(error);
    } finally {
      limit.cancel();
    }
  }

  close(): void {
    this.#plain.destroy();
    this.#secure.destroy();
  }

  /** The answer, if it is no refusal. After a 401 the request is repeated once if the token file has changed. */
  async #send(request: KubeRequest, signal: AbortSignal): Promise<http.IncomingMessage> {
    const { method = 'GET', path } = request;
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
    throw refusal(method, path, status, response.headers, await readAll(response, longestError, 'cut'));
  }

  async #token(signal: AbortSignal): Promise<string | undefined> {
    if (this.#tokenFile === undefined) return undefined;
    return (await readFile(this.#tokenFile, { encoding: 'utf8', signal })).trim();
  }

  async #ask(
    { method = 'GET', path, query, body }: KubeRequest,
    token: string | undefined,
    signal: AbortSignal,
  ): Promise<http.IncomingMessage> {
    const headers = {
      accept: 'application/json',
      'user-agent': `smart-router/${version}`,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
    const options: https.RequestOptions = { method, signal, headers };
    await abortable(this.#config.applyToHTTPSOptions(options), signal);
    const isProxied = this.#config.getCurrentCluster()?.proxyUrl !== undefined;
    const isSecure = this.#server.protocol === 'https:';
    if (!isProxied) options.agent = isSecure ? this.#secure : this.#plain;
    const payload = body === undefined ? undefined : JSON.stringify(body);
    if (payload !== undefined) {
      options.headers = {
        ...(options.headers as http.OutgoingHttpHeaders),
        'content-type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json',
        'content-length': Buffer.byteLength(payload),
      };
    }
    const base = this.#server.pathname.replace(/\/$/, '');
    const url = new URL(`${base}${path}?${new URLSearchParams(query)}`.replace(/\?$/, ''), this.#server);
    return new Promise<http.IncomingMessage>((resolve, reject) => {
      const sent = (isSecure ? https : http).request(url, options, resolve);
      sent.once('error', reject);
      sent.end(payload);
    });
  }

  /** One timer for the whole request; a stream restarts it with every byte. */
  #deadline({ method = 'GET', path, timeoutMs, signal }: KubeRequest) {
    const expired = new AbortController();
    let cancelTimer = () => {};
    const restart = () => {
      cancelTimer();
      cancelTimer = this.#clock.after(timeoutMs, () => expired.abort());
    };
    restart();
    return {
      signal: signal ? AbortSignal.any([signal, expired.signal]) : expired.signal,
      restart,
      cancel: () => cancelTimer(),
      explain: (error: unknown): Error => {
        if (error instanceof KubeError) return error;
        const what = `${method} ${path}`;
        if (expired.signal.aborted)
          return new KubeError(
            `the Kubernetes API was silent for ${Math.round(timeoutMs)} ms (${what})`,
            undefined,
            'Timeout',
          );
        if (signal?.aborted) return new KubeError(`given up (${what})`);
        const why = `the Kubernetes API did not answer: ${messageOf(error)} (${what})`;
        return new KubeError(why, undefined, 'Unreachable');
      },
    };
  }
}

/** Credentials may come from a program that hangs. */
function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(new Error('aborted'));
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

async function readAll(response: http.IncomingMessage, limit: number, beyond?: 'cut'): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit && beyond === undefined) throw new Error(`an answer of more than ${limit} bytes`);
    chunks.push(chunk);
    if (size > limit) break;
  }
  return Buffer.concat(chunks).subarray(0, limit).toString('utf8');
}

function refusal(
  method: string,
  path: string,
  status: number,
  headers: http.IncomingHttpHeaders,
  text: string,
): KubeError {
  let answer: { reason?: unknown; message?: unknown } = {};
  try {
    answer = (JSON.parse(text) ?? {}) as typeof answer;
  } catch {
    // Something before the API server answered: its text says enough.
  }
  const message = typeof answer.message === 'string' ? answer.message : text.slice(0, 200);
  const seconds = Number(headers['retry-after']);
  return new KubeError(
    `the Kubernetes API answered ${status} to ${method} ${path}: ${message}`,
    status,
    typeof answer.reason === 'string' ? answer.reason : undefined,
    Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : undefined,
  );
}
