/**
 * The HTTP server. Validation does not coerce (a number is not a string), every request has an id and a log line, every
 * response is counted in the metrics, errors have one shape.
 */
import { setMaxListeners } from 'node:events';
import swagger from '@fastify/swagger';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { AppError } from '../errors.js';
import { version } from '../version.js';
import { logAction } from './action-log.js';
import { kindOf } from './admission.js';
import { addressOf, authorize, isOpen, mayBeKnown } from './auth.js';
import { Connections, maxOpenFiles, reservedFiles } from './connections.js';
import { type App, bodyLimitBytes, type HttpContext } from './context.js';
import { rejectIfDisconnected } from './deadline.js';
import { answerBrokenRequest, answerError } from './errors.js';
import { admit, type GatedResponse, gatedServer, onceASecond, rejectionCounter, requestId } from './gate.js';
import { createRequestLog } from './request-log.js';
import { callRoutes } from './routes/calls.js';
import { consoleRoutes } from './routes/console.js';
import { eventRoutes } from './routes/events.js';
import { explainRoutes } from './routes/explain.js';
import { historyRoutes } from './routes/history.js';
import { operatorRoutes } from './routes/operators.js';
import { podRoutes } from './routes/pods.js';
import { Probes, probeRoutes } from './routes/probes.js';
import { recordRoutes } from './routes/records.js';
import { sessionRoutes } from './routes/session.js';
import { settingsRoutes } from './routes/settings.js';
import { webhookRoutes } from './routes/webhooks.js';
import { assertUnicodeUrl, notUtf8, surrogateProblem, textOf } from './unicode.js';

export const apiPrefix = '/api/v1';

export async function createServer(context: HttpContext, extend?: (app: App) => Promise<void>): Promise<App> {
  const { config, metrics, log, clock, stopping } = context;
  const connections = openConnections(context);
  const countRejection = rejectionCounter(context);
  // The fields of a request's line are this file's own: looking for secrets among them took 8 of 11 us per line.
  const requestLog = log.child({}, { redact: [] });
  const app: App = Fastify({
    // Fastify's own lines (the address it listens on) from warn up; lines of requests at LOG_LEVEL.
    loggerInstance: log.child(
      {},
      { level: log.isLevelEnabled('warn') ? 'warn' : log.level },
    ) as FastifyBaseLogger,
    childLoggerFactory: (_, ids) => createRequestLog(log as FastifyBaseLogger, ids),
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: bodyLimitBytes,
    trustProxy: trustOf(config.trustProxy),
    genReqId: ({ headers }) => requestId(headers['x-request-id']),
    serverFactory: (handler) =>
      gatedServer(
        context,
        {
          connections,
          countRejection,
          mayBeKnown: (request) => mayBeKnown(config, request, clock.now()),
        },
        handler,
      ),
    forceCloseConnections: 'idle',
    // Requests during a shutdown are served; their connection ends with the response (see onSend).
    return503OnClosing: false,
    // The maximum call id: 256 characters of 4 bytes, each byte as %XX.
    routerOptions: { maxParamLength: 3072, ignoreTrailingSlash: true },
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => {
      request.about = {};
      reply.header('x-request-id', request.id);
      const wrong = error.code === 'FST_ERR_BAD_URL' ? 'has invalid percent-encoding' : 'is too long';
      answerError(context, new AppError('invalid_request', `the path ${wrong}`), request, reply);
      // No hook runs here.
      recordAnswer(metrics, requestLog, request, reply);
    },
    ajv: {
      customOptions: {
        coerceTypes: false,
        removeAdditional: false,
        useDefaults: false,
        allErrors: false,
        verbose: true,
      },
    },
  }).withTypeProvider<TypeBoxTypeProvider>();

  // Each waiting drain and event stream adds a listener: hundreds are not a leak.
  setMaxListeners(0, stopping);
  app.removeContentTypeParser(['text/plain', 'application/json']);
  const parseJson = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    // Many clients send a content type with every request, also without a body.
    const isNeeded = request.method !== 'DELETE' && !request.routeOptions.config.bodyOptional;
    const text = textOf(body as Buffer);
    if (text === undefined) done(notUtf8());
    else if (text === '' && !isNeeded) done(null, undefined);
    else parseJson(request, text, (error, value) => done(error ?? surrogateProblem(text, value), value));
  });
  app.decorate('connections', connections);
  app.decorate('countRejection', countRejection);
  app.decorate('probes', new Probes(context));
  app.decorateRequest('about');
  app.decorateRequest('actor', '');
  app.setErrorHandler((error, request, reply) => answerError(context, error, request, reply));

  app.addHook('onRequest', (request, reply, done) => {
    request.about = {};
    reply.header('x-request-id', request.id);
    // Not onResponse: Fastify does not call it for a caller that disconnects before the response.
    reply.raw.once('close', () => {
      const isDisconnected = !reply.raw.headersSent;
      recordAnswer(metrics, requestLog, request, reply, isDisconnected);
      logAction(request, reply, isDisconnected);
    });
    done();
  });
  // Before authorization: rejected requests are traced, too.
  context.tracing?.hookInto(app);
  const allAreKnown = isOpen(config);
  app.addHook('onRequest', (request, reply, done) => {
    // Unknown paths are 404 for every caller, without waiting for the body.
    if (request.is404) throw notFound(request, methods);
    assertUnicodeUrl(request.raw.url ?? '');
    const address = addressOf(request);
    request.actor = `unknown@${address}`;
    const access = request.routeOptions.config.access ?? 'admin';
    const who = authorize(config, access, request, clock.now());
    request.actor = `${who}@${address}`;
    const response = reply.raw as GatedResponse;
    if (allAreKnown || access === 'api' || access === 'admin') connections.known(response);
    else if (!connections.countFor(response, address)) throw tooManyRequests();
    done();
  });
  // The body is complete. A webhook takes its slot after the check of its signature (routes/webhooks.ts).
  app.addHook('preValidation', (request, reply, done) => {
    const { access = 'admin', bodyOptional } = request.routeOptions.config;
    if (request.body === undefined && bodyOptional) request.body = {};
    if (access !== 'webhook') admit(context, reply, access === 'public' && !allAreKnown);
    done();
  });
  app.addHook('onSend', (_, reply, payload, done) => {
    if (stopping.aborted || connections.isOver(reply.raw as GatedResponse))
      reply.header('connection', 'close');
    done(null, payload);
  });
  // Only into routes with an action: calls do not pay for it. As the last hook, so that nothing waits after it.
  app.addHook('onRoute', (route) => {
    const [method = ''] = [route.method].flat();
    route.config = { ...route.config, kind: kindOf(method, route.url) };
    const { action } = route.config;
    if (action === undefined || action.mayBeLate) return;
    const reject = (request: FastifyRequest) => rejectIfDisconnected(clock, request);
    route.preHandler = [route.preHandler ?? [], reject].flat();
  });

  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Smart Router',
        version,
        description: 'Every live phone call gets a healthy voice-agent pod, atomically.',
      },
      components: { securitySchemes: { key: { type: 'http', scheme: 'bearer' } } },
    },
    transform: ({ schema, url, route }) => {
      const access = route.config?.access ?? 'admin';
      const needsKey = access === 'api' || access === 'admin';
      return { url, schema: { ...schema, security: needsKey ? [{ key: [] }] : [] } };
    },
  });
  const methods = collectMethods(app);
  app.setNotFoundHandler((request, reply) => {
    answerError(context, notFound(request, methods), request, reply);
  });

  await app.register(
    async (api) => {
      for (const routes of [
        callRoutes,
        podRoutes,
        operatorRoutes,
        explainRoutes,
        recordRoutes,
        settingsRoutes,
        eventRoutes,
        historyRoutes,
        sessionRoutes,
        webhookRoutes,
        probeRoutes,
      ]) {
        await api.register(async (scope) => routes(scope as App, context));
      }
      api.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger());
    },
    { prefix: apiPrefix },
  );
  // Probes also without prefix, where Kubernetes and Prometheus expect them.
  await app.register(async (scope) => probeRoutes(scope as App, context, { hide: true }));
  await app.register(async (scope) => consoleRoutes(scope as App));
  await extend?.(app);
  return app;
}

/** How long a peer may take to read a written response. */
const unreadMs = 90_000;

function openConnections({ clock, config, metrics, log }: HttpContext): Connections {
  const max = Math.min(config.maxConnections, maxOpenFiles() - reservedFiles);
  if (max < config.maxConnections)
    log.warn(
      { max_connections: max, configured: config.maxConnections },
      'MAX_CONNECTIONS lowered to the limit of open files; raise it with `ulimit -n`',
    );
  const limits = {
    max,
    maxPerAddress: config.maxConnectionsPerAddress,
    isBehindProxy: config.trustProxy !== false,
    unreadMs,
  };
  const logClosed = onceASecond(clock, (closed) =>
    log.warn({ closed }, 'connections closed: over a limit, or response not read'),
  );
  return new Connections(clock, limits, (reason) => {
    metrics.connectionsClosed.inc({ reason });
    logClosed();
  });
}

function tooManyRequests(): AppError {
  return new AppError('too_many_requests', 'too many open requests from this address; retry', {
    retryAfterSeconds: 1,
  });
}

/** The status that proxies use for callers that disconnected before the response. */
const disconnectedStatus = 499;

/** Counts and logs a response; never with the URL, which may hold phone numbers and tokens. */
function recordAnswer(
  metrics: HttpContext['metrics'],
  log: HttpContext['log'],
  request: FastifyRequest,
  reply: FastifyReply,
  isDisconnected = false,
): void {
  const { url, config } = request.routeOptions;
  const labels = {
    method: request.method,
    endpoint: url ?? 'unmatched',
    status: String(isDisconnected ? disconnectedStatus : reply.statusCode),
  };
  metrics.httpRequests.inc(labels);
  metrics.httpDuration.observe(labels, reply.elapsedTime / 1000);
  const level = reply.statusCode >= 500 ? 'warn' : config.quiet ? 'debug' : 'info';
  const ms = Math.round(reply.elapsedTime * 10) / 10;
  log[level]({ reqId: request.id, ...labels, ms, ...request.about }, 'request');
}

/** A number is the number of proxies in front of this router. */
function trustOf(setting: HttpContext['config']['trustProxy']) {
  return typeof setting === 'number' ? (_: string, hop: number) => hop < setting : setting;
}

interface KnownPath {
  pattern: RegExp;
  methods: Set<string>;
}

/** Collects the methods of each path, to tell a wrong method from a wrong path. */
function collectMethods(app: App): Map<string, KnownPath> {
  const known = new Map<string, KnownPath>();
  app.addHook('onRoute', ({ url, method }) => {
    const pattern = new RegExp(`^${url.replace(/:[^/]+/g, '[^/]+').replace(/\/$/, '')}/?$`);
    const entry = known.get(url) ?? { pattern, methods: new Set<string>() };
    for (const one of Array.isArray(method) ? method : [method]) entry.methods.add(one);
    known.set(url, entry);
  });
  return known;
}

function notFound(request: FastifyRequest, known: ReadonlyMap<string, KnownPath>): AppError {
  const path = (request.url.split('?')[0] ?? '').slice(0, 200);
  const allowed = new Set(
    [...known.values()].filter(({ pattern }) => pattern.test(path)).flatMap(({ methods }) => [...methods]),
  );
  if (allowed.size > 0) {
    return new AppError(
      'method_not_allowed',
      `method ${request.method} is not allowed for ${path}: use ${[...allowed].join(' or ')}`,
    );
  }
  return new AppError('not_found', `no route for ${request.method} ${path}: see ${apiPrefix}/openapi.json`);
}
