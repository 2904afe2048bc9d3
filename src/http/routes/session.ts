/** Sign-in to the console and sign-out. The admin key is not stored; see sessions.ts. */
import type { FastifyRequest } from 'fastify';
import { AppError } from '../../errors.js';
import { version } from '../../version.js';
import { addressOf, isOpen, noAdminKey, sessionOf } from '../auth.js';
import { type App, documented, type HttpContext } from '../context.js';
import * as shapes from '../operator-schemas.js';
import { secretsEqual } from '../providers/signatures.js';
import { ErrorAnswer } from '../schemas.js';
import { cookieHeader, maxFailures, SignInLimit, sealSession } from '../sessions.js';

export async function sessionRoutes(app: App, { config, clock }: HttpContext): Promise<void> {
  const about = documented('console');
  const limit = new SignInLimit(clock);
  const needsNoKey = isOpen(config);
  app.addHook('onSend', async (_, reply) => {
    reply.header('cache-control', 'no-store');
  });

  app.post(
    '/session',
    {
      config: { access: 'public', action: { name: 'session.sign_in' } },
      // The route is public, and a key has at most 512 characters.
      bodyLimit: 4096,
      // Never quotes the body: it may hold the key in the wrong field.
      schemaErrorFormatter: () =>
        new AppError('invalid_request', 'the body must be a JSON object with key: the admin key, a string'),
      ...about('Sign in to the console with the admin key; sets a cookie', {
        body: shapes.SignInBody,
        response: {
          200: shapes.SignedIn,
          400: ErrorAnswer,
          401: ErrorAnswer,
          403: ErrorAnswer,
          429: ErrorAnswer,
        },
      }),
    },
    async (request, reply) => {
      if (needsNoKey) return { success: true as const, expires_at: null };
      if (config.adminKey === undefined) throw noAdminKey();
      const address = addressOf(request);
      const waitSeconds = limit.waitSeconds(address);
      if (waitSeconds > 0) {
        throw new AppError(
          'too_many_requests',
          `${maxFailures} wrong keys from your address within a minute: wait ${waitSeconds} s`,
          { retryAfterSeconds: waitSeconds },
        );
      }
      const { key } = request.body;
      if (typeof key !== 'string')
        throw new AppError('invalid_request', 'key must be the admin key: a string');
      if (!secretsEqual(key, config.adminKey)) {
        limit.failed(address);
        throw new AppError('unauthorized', 'wrong admin key');
      }
      limit.succeeded(address);
      const ttlMs = config.consoleSessionTtlMs;
      const { value, session } = sealSession(config.adminKey, clock.now() + ttlMs);
      request.actor = `${session.name}@${address}`;
      reply.header('set-cookie', cookieHeader(value, ttlMs, cameByHttps(config.publicUrl, request)));
      return { success: true as const, expires_at: new Date(session.expiresAtMs).toISOString() };
    },
  );

  app.get(
    '/session',
    {
      config: { access: 'public', quiet: true },
      ...about('Whether the console requires a sign-in, and whether this browser is signed in', {
        response: { 200: shapes.SessionState },
      }),
    },
    async (request) => {
      const session = sessionOf(config, request, clock.now());
      return {
        required: !needsNoKey,
        signed_in: needsNoKey || session !== undefined,
        expires_at: session ? new Date(session.expiresAtMs).toISOString() : null,
        version,
      };
    },
  );

  app.delete(
    '/session',
    {
      config: { access: 'public', action: { name: 'session.sign_out' } },
      ...about('Sign out: deletes the cookie', { response: { 200: shapes.SignedOut } }),
    },
    async (request, reply) => {
      const session = sessionOf(config, request, clock.now());
      if (session) request.actor = `${session.name}@${addressOf(request)}`;
      // By https also the cookie of a sign-in by http: it would keep this browser signed in.
      const kinds = cameByHttps(config.publicUrl, request) ? [true, false] : [false];
      reply.header(
        'set-cookie',
        kinds.map((isSecure) => cookieHeader('', 0, isSecure)),
      );
      return { success: true as const };
    },
  );
}

/** A trusted proxy says so, or the request went to the host of an https PUBLIC_URL. */
function cameByHttps(publicUrl: string | undefined, { protocol, host }: FastifyRequest): boolean {
  if (protocol === 'https') return true;
  const known = publicUrl === undefined ? undefined : new URL(publicUrl);
  return known?.protocol === 'https:' && known.host === host;
}
