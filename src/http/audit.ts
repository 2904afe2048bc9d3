/**
 * Who did what: one log line for every action of an operator, whatever became of it. A route says in its configuration
 * that it is one; the line is written when its answer has been sent, or its caller has hung up before that, at every
 * LOG_LEVEL, and marked `audit: true` so that it can be kept apart. What a request carried is not in it, only what it was about.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { addressOf } from './auth.js';

export interface Audited {
  /** Like `pod.drain`. */
  action: string;
  /** What it was done to. Requests that were refused come here too, so nothing is certain of their bodies. */
  what?: (request: FastifyRequest) => unknown;
  /** Voice agents do the same for every call: only who holds the admin key or a session gets a line. */
  ofOperatorsOnly?: boolean;
  /** Done although its caller has gone before it began; every other action is refused then (see refuseIfGone). */
  mayBeLate?: boolean;
  /** Whether it was only asked what would be done. */
  isDryRun?: (request: FastifyRequest) => boolean;
}

const longest = 256;

/** Who holds the admin key or a session of the console, as the request's `actor` has it. */
export function isOperator(actor: string): boolean {
  return /^(admin@|console:)/.test(actor);
}

/** `isCallerGone`: before there was an answer. What was asked for may have been done, or not. */
export function audit(request: FastifyRequest, reply: FastifyReply, isCallerGone: boolean): void {
  const audited = request.routeOptions.config.audit;
  if (!audited || (audited.ofOperatorsOnly && !isOperator(request.actor))) return;
  const { action, what, isDryRun } = audited;
  const status = reply.statusCode;
  const answered =
    status >= 500 ? 'failed' : status >= 400 ? 'refused' : isDryRun?.(request) ? 'dry_run' : 'done';
  const outcome = isCallerGone ? 'caller_gone' : answered;
  const { code } = request.about;
  const line = {
    audit: true,
    action,
    what: shown(what?.(request)),
    outcome,
    ...(code === undefined ? {} : { code }),
    actor: request.actor,
    address: addressOf(request),
    request_id: request.id,
  };
  // Its own level: somebody who wants few lines still wants these.
  request.log.child({}, { level: 'info' }).info(line, `audit: ${action} ${outcome}`);
}

/** A field of the body, however wrong the body is. */
export function bodyField(name: string): (request: FastifyRequest) => unknown {
  return ({ body }) =>
    typeof body === 'object' && body !== null ? (body as Record<string, unknown>)[name] : undefined;
}

export function param(name: string): (request: FastifyRequest) => unknown {
  return ({ params }) => (params as Record<string, unknown>)[name];
}

function shown(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value.slice(0, longest) : null;
}
