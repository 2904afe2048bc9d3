/**
 * The log of operators' actions: one line per action and outcome. A route declares its action in its configuration. The
 * line is written when the response has been sent or the caller has disconnected, at every LOG_LEVEL, with `audit: true`
 * as the mark for collectors. It names the target of the action, never the content of the request.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { addressOf } from './auth.js';

export interface OperatorAction {
  /** For example `pod.drain`. */
  name: string;
  /** The object of the action. Also called for rejected requests, whose body can be anything. */
  target?: (request: FastifyRequest) => unknown;
  /** Voice agents do the same for every call: log only callers with the admin key or a session. */
  ofOperatorsOnly?: boolean;
  /** Executed even if the caller disconnected before; other actions are rejected then (see rejectIfDisconnected). */
  mayBeLate?: boolean;
  isDryRun?: (request: FastifyRequest) => boolean;
}

const maxTargetLength = 256;

/** Whether `request.actor` holds the admin key or a session of the console. */
export function isOperator(actor: string): boolean {
  return /^(admin@|console:)/.test(actor);
}

/** `isDisconnected`: the caller closed the connection before the response. The action may or may not have been done. */
export function logAction(request: FastifyRequest, reply: FastifyReply, isDisconnected: boolean): void {
  const { action } = request.routeOptions.config;
  if (!action || (action.ofOperatorsOnly && !isOperator(request.actor))) return;
  const status = reply.statusCode;
  const answered =
    status >= 500 ? 'failed' : status >= 400 ? 'refused' : action.isDryRun?.(request) ? 'dry_run' : 'done';
  const outcome = isDisconnected ? 'caller_gone' : answered;
  const target = action.target?.(request);
  const { code } = request.about;
  const line = {
    audit: true,
    action: action.name,
    what: typeof target === 'string' && target !== '' ? target.slice(0, maxTargetLength) : null,
    outcome,
    ...(code === undefined ? {} : { code }),
    actor: request.actor,
    address: addressOf(request),
    request_id: request.id,
  };
  // A level of its own: LOG_LEVEL=error must not drop these lines.
  request.log.child({}, { level: 'info' }).info(line, `audit: ${action.name} ${outcome}`);
}

/** Reads a field of a body that may have any shape. */
export function bodyField(name: string): (request: FastifyRequest) => unknown {
  return ({ body }) =>
    typeof body === 'object' && body !== null ? (body as Record<string, unknown>)[name] : undefined;
}

export function param(name: string): (request: FastifyRequest) => unknown {
  return ({ params }) => (params as Record<string, unknown>)[name];
}
