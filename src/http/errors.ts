/** Turns every failure into a JSON response with a stable code; an unexpected one is a 500 and a log line. */
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { showValue, visible } from '../config/tiers.js';
import { AppError, type ErrorCode, errorCodes, isInstance, messageOf } from '../errors.js';
import type { HttpContext } from './context.js';

interface ValidationIssue {
  instancePath: string;
  keyword: string;
  message?: string;
  params: Record<string, unknown>;
  data?: unknown;
  parentSchema?: { description?: string; properties?: Record<string, { description?: string }> };
}

export function answerError(
  context: HttpContext,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const app = isInstance(error, AppError) ? error : fromFastify(error as FastifyError, request);
  if (app.code === 'internal') {
    context.metrics.panicsRecovered.inc();
    request.log.error({ err: error }, 'request failed with an unexpected error');
  }
  request.about.code = app.code;
  if (app.details.retryAfterSeconds !== undefined) reply.header('retry-after', app.details.retryAfterSeconds);
  reply.status(app.status).send(errorBody(app));
}

export function errorBody(error: AppError) {
  const text = error.code === 'internal' ? 'internal error: see the log of the router' : error.message;
  const { problems } = error.details;
  // Messages quote call ids, which may hold any Unicode.
  return {
    success: false as const,
    error: visible(text),
    code: error.code,
    ...(problems ? { problems: problems.map(visible) } : {}),
  };
}

/** Invalid HTTP, or headers over Node's 16 KiB, never become a request: answers on the socket. */
export function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const app = fromParser(error.code);
  const body = JSON.stringify(errorBody(app));
  const head = [
    `HTTP/1.1 ${app.status} ${STATUS_CODES[app.status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}

function fromParser(code: string | undefined): AppError {
  if (code === 'HPE_HEADER_OVERFLOW') {
    return new AppError('payload_too_large', 'the request headers are larger than 16 KiB');
  }
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    return new AppError('invalid_request', 'the request did not arrive completely within 30 s');
  }
  return new AppError('invalid_request', 'invalid HTTP request');
}

function fromFastify(error: FastifyError, request: FastifyRequest): AppError {
  if (error.validation) {
    const where = error.validationContext === 'body' ? '' : `${error.validationContext}: `;
    return new AppError(
      'invalid_request',
      where + describe(error.validation[0] as unknown as ValidationIssue),
    );
  }
  switch (error.code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new AppError('payload_too_large', `the body is larger than ${limitOf(request)}`);
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new AppError(
        'unsupported_media_type',
        request.routeOptions.config.access === 'webhook'
          ? 'the body must be a form, sent with content-type: application/x-www-form-urlencoded'
          : 'the body must be JSON, sent with content-type: application/json',
      );
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
      return new AppError('invalid_request', 'the body is empty: it must be a JSON object');
    case 'FST_ERR_CTP_INVALID_JSON_BODY':
      return new AppError('invalid_request', 'the body is not valid JSON, or has the key __proto__');
  }
  const known = Object.entries(errorCodes).find(
    ([code, status]) => status === error.statusCode && code !== 'internal',
  );
  if (known && error.statusCode !== undefined && error.statusCode < 500) {
    return new AppError(known[0] as ErrorCode, error.message);
  }
  return new AppError('internal', messageOf(error), { cause: error });
}

function limitOf({ routeOptions: { bodyLimit = 0 } }: FastifyRequest): string {
  const mebibytes = bodyLimit / 2 ** 20;
  return mebibytes < 1 ? `${bodyLimit / 2 ** 10} KiB` : `${mebibytes} MiB`;
}

function describe({ instancePath, keyword, message, params, data, parentSchema }: ValidationIssue): string {
  const field = instancePath.slice(1).replaceAll('/', '.') || 'the body';
  if (keyword === 'required') {
    const missing = String(params.missingProperty);
    const expected = parentSchema?.properties?.[missing]?.description;
    return `${missing} is missing${expected ? `: it must be ${expected}` : ''}`;
  }
  return `${field} must be ${parentSchema?.description ?? message}, got ${showValue(data)}`;
}
