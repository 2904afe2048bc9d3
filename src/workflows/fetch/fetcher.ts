/**
 * Fetches untrusted pages. Guarantees: `get` ends within its total time, holds at most one chunk of the body at a time,
 * connects only to public addresses (`addresses.ts`, checked on every redirect) unless private ones are allowed, and
 * fails with a FetchError of one line.
 *
 * Every request has its own connection: it was checked when it was opened, it carries nothing from one site to the next,
 * and nothing must be closed at the end. The price is a TLS handshake per page.
 *
 * Weakness: without cookies and scripts, a site that needs them redirects in a loop or shows an empty page. robots.txt
 * is not read: the URLs in the table were chosen by the team.
 */
import * as http from 'node:http';
import * as https from 'node:https';
import type { LookupFunction } from 'node:net';
import { abortWith, type Clock, Deadline } from '../../clock.js';
import { formatDuration } from '../../config/durations.js';
import { messageOf } from '../../errors.js';
import { userAgent } from '../../version.js';
import {
  type AllowedPrivate,
  guardedLookup,
  type Resolve,
  refuseLiteral,
  systemResolve,
} from './addresses.js';
import { type Chunks, decoded, type SizeLimit, tooLarge } from './body.js';
import { FetchError, readUrl, reasonOf, shown } from './urls.js';

export interface FetcherOptions {
  clock: Clock;
  /** For sites on the team's own network: all private addresses, or only these. Default: false. */
  allowPrivateAddresses?: AllowedPrivate;
  /** For redirects, headers and body together. Default: 30 seconds. */
  totalMs?: number;
  /** Default: 10 seconds. */
  silenceMs?: number;
  /** Default: 5. */
  maxRedirects?: number;
  /** Default: `smart-router/<version>`. */
  userAgent?: string;
  /** Default: the system's. */
  resolve?: Resolve;
}

export interface FetchRequest extends SizeLimit {
  readonly accept: string;
  readonly signal: AbortSignal;
}

export interface Answer {
  /** Where the redirects ended. */
  readonly url: string;
  readonly contentType: string | undefined;
  /** Without its `Content-Encoding`. */
  readonly body: Chunks;
  /** Aborts when the total time is over, also while `consume` processes the body. */
  readonly signal: AbortSignal;
}

const redirects = new Set([301, 302, 303, 307, 308]);

export class Fetcher {
  readonly #options: Required<FetcherOptions>;
  readonly #lookup: LookupFunction;

  constructor(options: FetcherOptions) {
    this.#options = {
      ...{ allowPrivateAddresses: false, totalMs: 30_000, silenceMs: 10_000, maxRedirects: 5, userAgent },
      ...{ resolve: systemResolve, ...options },
    };
    this.#lookup = guardedLookup(this.#options.resolve, this.#options.allowPrivateAddresses);
  }

  /** `consume` reads the body; the connection is closed when it returns, even if it did not read everything. */
  async get<T>(address: string, request: FetchRequest, consume: (answer: Answer) => Promise<T>): Promise<T> {
    const { signal: caller } = request;
    const { clock, totalMs, silenceMs } = this.#options;
    // The reason of an abort is the error to show.
    const ended = (how: string) => new FetchError(`GET ${shown(address)} ${how}`);
    const aborted = new AbortController();
    const unlink = abortWith(aborted, caller, () => ended(`was aborted: ${messageOf(caller.reason)}`));
    const total = new Deadline(
      clock,
      totalMs,
      () => ended(`took longer than ${formatDuration(totalMs)}`),
      aborted.signal,
    );
    // Runs while the server is expected to send something.
    const silence = new Deadline(
      clock,
      silenceMs,
      () => ended(`sent nothing for ${formatDuration(silenceMs)}`),
      total.signal,
    );
    try {
      const { url, response } = await this.#follow(address, request, silence);
      try {
        const length = Number(response.headers['content-length'] ?? 0);
        if (length > request.maxBytes) throw tooLarge(request);
        const { 'content-encoding': encoding, 'content-type': contentType } = response.headers;
        const body = decoded(received(response, url, silence), encoding, request);
        return await consume({ url: url.href, contentType, body, signal: silence.signal });
      } finally {
        response.destroy();
      }
    } finally {
      silence.end();
      total.end();
      unlink();
    }
  }

  async #follow(address: string, { accept }: FetchRequest, deadline: Deadline) {
    const { maxRedirects } = this.#options;
    const start = readUrl(address);
    if ('problem' in start) throw new FetchError(`cannot fetch ${shown(address)}: ${start.problem}`);
    let { url } = start;
    const visited = new Set<string>();
    for (;;) {
      visited.add(url.href);
      const response = await this.#send(url, accept, deadline);
      const { statusCode: status = 0, headers } = response;
      if (status >= 200 && status < 300) return { url, response };
      response.destroy();
      const what = `GET ${shown(url.href)}`;
      if (!redirects.has(status)) throw new FetchError(`${what} answered ${status}`);
      if (headers.location === undefined)
        throw new FetchError(`${what} answered ${status} without a Location`);
      // Node reads headers as Latin-1; unescaped ones are UTF-8.
      const location = Buffer.from(headers.location, 'latin1').toString();
      const next = readUrl(location, url);
      if ('problem' in next) throw new FetchError(`${what} redirects to ${shown(location)}: ${next.problem}`);
      if (visited.has(next.url.href))
        throw new FetchError(`${what} redirects in a loop, to ${shown(next.url.href)}`);
      if (visited.size > maxRedirects)
        throw new FetchError(`GET ${shown(address)} redirects more than ${maxRedirects} times`);
      url = next.url;
    }
  }

  #send(url: URL, accept: string, deadline: Deadline): Promise<http.IncomingMessage> {
    const { signal } = deadline;
    const { allowPrivateAddresses, userAgent: agent } = this.#options;
    refuseLiteral(url, allowPrivateAddresses);
    const headers = { accept, 'accept-encoding': 'gzip, br, deflate', 'user-agent': agent };
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const client = url.protocol === 'https:' ? https : http;
      const request = client.get(url, { agent: false, lookup: this.#lookup, headers });
      const end = () => request.destroy(signal.reason);
      signal.addEventListener('abort', end, { once: true });
      deadline.restart();
      request.on('response', (response) => {
        deadline.pause();
        // An error without a listener would end the process; a reader gets it later.
        response.on('error', () => {});
        resolve(response);
      });
      request.on('error', (error) => reject(failure(url, error)));
      // For example a server that switches protocols without a request.
      request.on('close', () => {
        signal.removeEventListener('abort', end);
        reject(failure(url, new Error('the connection was closed without an answer')));
      });
    });
  }
}

async function* received(
  response: http.IncomingMessage,
  url: URL,
  deadline: Deadline,
): AsyncGenerator<Buffer> {
  try {
    deadline.restart();
    for await (const chunk of response) {
      deadline.pause();
      yield chunk as Buffer;
      deadline.restart();
    }
    deadline.pause();
    // The connection closed at the deadline looks like the end of a body without a length.
    deadline.signal.throwIfAborted();
  } catch (error) {
    throw deadline.signal.aborted ? deadline.signal.reason : failure(url, error);
  }
}

function failure(url: URL, error: unknown): FetchError {
  if (error instanceof FetchError) return error;
  return new FetchError(`GET ${shown(url.href)} failed: ${reasonOf(error)}`);
}
