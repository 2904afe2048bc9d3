/**
 * Every error code of the API, with its HTTP status. Codes are stable: clients branch on them.
 * docs/errors.md explains each one, and a test fails when one is missing there.
 */
export const errorCodes = {
  invalid_request: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  call_not_found: 404,
  pod_not_found: 404,
  merchant_not_found: 404,
  nothing_held: 404,
  workflow_not_found: 404,
  method_not_allowed: 405,
  stale_fence: 409,
  call_lost: 409,
  stale_report: 409,
  pod_replaced: 409,
  version_conflict: 409,
  tier_conflict: 409,
  payload_too_large: 413,
  unsupported_media_type: 415,
  too_many_requests: 429,
  merchant_limit: 429,
  internal: 500,
  no_pods: 503,
  queue_full: 503,
  wait_expired: 503,
  overloaded: 503,
  store_unavailable: 503,
  store_full: 503,
  not_replicated: 503,
  database_unavailable: 503,
  timeout: 503,
  shutting_down: 503,
  router_unavailable: 503,
} as const;

export type ErrorCode = keyof typeof errorCodes;

/** An error for a caller. Its message says what failed, why, and what to do. */
export class AppError extends Error {
  override readonly name = 'AppError';
  readonly status: number;

  constructor(
    readonly code: ErrorCode,
    message: string,
    readonly details: { retryAfterSeconds?: number; problems?: readonly string[]; cause?: unknown } = {},
  ) {
    super(message, { cause: details.cause });
    this.status = errorCodes[code];
  }
}

/** A configuration error (environment, arguments), printed as one line per problem, without a stack trace. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';

  constructor(readonly problems: readonly string[]) {
    super(problems.join('\n'));
  }
}

/** In UTF-16 units. */
const maxMessageLength = 8192;
const noMessage = 'failed without a message';

/**
 * Returns the message of an error. Never throws, for any thrown value: an AggregateError that contains itself, a Proxy or a
 * getter that throws, an object without toString. The text is bounded, valid Unicode, without NUL and never empty.
 * Node reports one error per address inside an AggregateError without a message: returns the first of them.
 */
export function messageOf(thrown: unknown): string {
  try {
    let error = thrown;
    for (let depth = 0; depth < 8 && error instanceof AggregateError && error.errors.length > 0; depth += 1)
      error = error.errors[0];
    const text = error instanceof Error ? String(error.message || error.name) : String(error);
    return plainText(text.slice(0, maxMessageLength)) || noMessage;
  } catch {
    return noMessage;
  }
}

/** The message of an error and that of its cause: "fetch failed" alone does not say why. */
export function messageWithCauseOf(thrown: unknown): string {
  const message = messageOf(thrown);
  try {
    const { cause } = thrown as Error;
    if (!(cause instanceof Error) || message.includes(messageOf(cause))) return message;
    return messageOf(`${message}: ${messageOf(cause)}`);
  } catch {
    return message;
  }
}

/** The text without NUL, and with U+FFFD for lone surrogates: PostgreSQL and UTF-8 accept neither. */
export function plainText(text: string): string {
  return text.replaceAll('\0', '').replace(/\p{Surrogate}/gu, '\uFFFD');
}

/** `value instanceof type` for a value that foreign code threw: false if the check itself throws, as with a Proxy. */
export function isInstance<T>(value: unknown, type: abstract new (...args: never[]) => T): value is T {
  try {
    return value instanceof type;
  } catch {
    return false;
  }
}

/** Whether the store was unreachable. An error reply of the store (a key with a wrong type) is `internal`. */
export function isStoreDown({ code }: AppError): boolean {
  return code !== 'internal';
}
