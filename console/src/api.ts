/**
 * The API of the router for the console: same origin, with the session cookie; mutating requests send `X-Console`, which
 * a foreign page cannot. An error is one sentence, the router's own if there is one.
 */
const prefix = 'api/v1';
const timeoutMs = 20_000;

export class ApiError extends Error {
  override readonly name = 'ApiError';

  constructor(
    /** 0: no answer. */
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problems: readonly string[] = [],
    /** From Retry-After; 0: none. */
    readonly retryAfterMs = 0,
  ) {
    super(message);
  }

  /** A retry may succeed. */
  get isPassing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export const sentenceOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
/** All errors of a rejected configuration, or the one of anything else. */
export const problemsOf = (error: unknown): readonly string[] =>
  error instanceof ApiError && error.problems.length > 0 ? error.problems : [sentenceOf(error)];

/** Called when the router no longer accepts the session. */
let onLocked: () => void = () => {};
export function whenLocked(listener: () => void): void {
  onLocked = listener;
}

interface Asking {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Resolves to the response, for streams and headers; rejects with an ApiError unless the status is 2xx. */
export async function request(path: string, { method = 'GET', body, headers = {}, signal }: Asking = {}) {
  let response: Response;
  try {
    response = await fetch(prefix + path, {
      method,
      cache: 'no-store',
      headers: {
        ...(method === 'GET' ? {} : { 'x-console': '1' }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    throw noAnswer(error);
  }
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (response.status === 401 && path !== '/session') onLocked();
  throw problem;
}

export async function ask<T>(path: string, asking: Asking = {}): Promise<T> {
  const response = await request(path, { signal: AbortSignal.timeout(timeoutMs), ...asking });
  try {
    return (await response.json()) as T;
  } catch (error) {
    // The response was incomplete.
    throw error instanceof SyntaxError ? error : noAnswer(error);
  }
}

/** Aborts after a timeout, or with the given signal. */
export const withTimeout = (ms: number, over: AbortSignal) =>
  AbortSignal.any([over, AbortSignal.timeout(ms)]);

function noAnswer(error: unknown): ApiError {
  return error instanceof DOMException && error.name === 'TimeoutError'
    ? new ApiError(0, 'timeout', 'the router did not answer in time')
    : new ApiError(0, 'unreachable', 'the router cannot be reached');
}

async function readProblem(response: Response): Promise<ApiError> {
  const fallback = `the router answered with status ${response.status}`;
  const retryAfterMs = (Number(response.headers.get('retry-after')) || 0) * 1000;
  try {
    const { error = fallback, code = 'unknown', problems = [] } = await response.json();
    return new ApiError(response.status, String(code), String(error), problems, retryAfterMs);
  } catch {
    return new ApiError(response.status, 'unknown', fallback, [], retryAfterMs);
  }
}

/** Reads a whole list, 1,000 items at a time; each page has its own timeout. */
export async function readPages<T>(path: string, field: string, deadline: () => AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const all = `${path}${path.includes('?') ? '&' : '?'}limit=1000${query}`;
    const page = await ask<Record<string, unknown>>(all, { signal: deadline() });
    // Release 0.1.0 has no waiting calls.
    items.push(...((page[field] ?? []) as T[]));
    cursor = page.cursor as string | null;
  } while (cursor !== null);
  return items;
}
