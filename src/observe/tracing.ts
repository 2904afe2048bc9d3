/**
 * OpenTelemetry traces, if OTEL_EXPORTER_OTLP_ENDPOINT names a collector: a span for every request (a child of the caller's
 * `traceparent`), in it one for every store command, and one for every processed record. Spans are sent in the background: a
 * slow or unreachable collector loses spans and delays nothing. The router loads this file only if there is an endpoint.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import {
  type Attributes,
  type Context,
  DiagLogLevel,
  defaultTextMapGetter,
  diag,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Clock, within } from '../clock.js';
import { version } from '../version.js';
import type { Logger } from './log.js';

const stopTimeoutMs = 3000;
/** An unreachable collector is logged once a minute. */
const logIntervalMs = 60_000;

export interface TracingConfig {
  otelExporterOtlpEndpoint: string;
  otelExporterOtlpHeaders: [name: string, value: string][] | undefined;
  otelServiceName: string;
  otelTracesSamplerArg: number;
  podName: string;
}

export class Tracing {
  /** For the record plane. */
  readonly records = {
    processed: (workflow: string, seconds: number) =>
      this.#past(`process ${workflow}`, seconds, { 'smart_router.workflow': workflow }),
  };
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #provider: TracerProvider;
  readonly #tracer: Tracer;
  readonly #propagator = new W3CTraceContextPropagator();
  /** Of the current request. */
  readonly #current = new AsyncLocalStorage<Context>();
  readonly #spans = new WeakMap<FastifyRequest, Span>();
  #loggedMs = Number.NEGATIVE_INFINITY;

  constructor(config: TracingConfig, { clock, log }: { clock: Clock; log: Logger }) {
    this.#clock = clock;
    this.#log = log;
    diag.setLogger(this.#diagnosticLogger(), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
    const exporter = new OTLPTraceExporter({
      url: `${config.otelExporterOtlpEndpoint.replace(/\/+$/, '')}/v1/traces`,
      headers: Object.fromEntries(config.otelExporterOtlpHeaders ?? []),
      timeoutMillis: 5000,
    });
    this.#provider = new TracerProvider({
      resource: resourceFromAttributes({
        'service.name': config.otelServiceName,
        'service.version': version,
        'service.instance.id': config.podName,
      }),
      sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(config.otelTracesSamplerArg) }),
      spanProcessors: [new BatchSpanProcessor({ exporter, maxQueueSize: 4096, scheduledDelayMillis: 1000 })],
    });
    this.#tracer = this.#provider.getTracer('smart-router', version);
  }

  /** Call it before routes are added. */
  hookInto(app: FastifyInstance): void {
    app.addHook('onRequest', (request, _, done) => {
      this.#begin(request);
      done();
    });
    // Not earlier: reading the body loses a context entered before it.
    app.addHook('preHandler', (request, _, done) => {
      const span = this.#spans.get(request);
      if (span) this.#current.run(trace.setSpan(ROOT_CONTEXT, span), done);
      else done();
    });
    // A caller that disconnected gets no response, so there is no onResponse: its span ends with the work.
    app.addHook('onSend', (request, reply, payload, done) => {
      if (reply.raw.destroyed) this.#end(request, reply);
      done(null, payload);
    });
    app.addHook('onResponse', async (request, reply) => this.#end(request, reply));
  }

  observeStore(operation: string, outcome: 'ok' | 'error', seconds: number): void {
    const parent = this.#current.getStore();
    // Commands of the loops have no parent.
    if (!parent) return;
    this.#past(
      `store ${operation}`,
      seconds,
      { 'db.system.name': 'redis', 'db.operation.name': operation },
      parent,
      outcome,
    );
  }

  /** Sends the remaining spans, for a few seconds at most. */
  async stop(): Promise<void> {
    const sent = this.#provider.shutdown().catch(() => {});
    await within(this.#clock, stopTimeoutMs, sent, () => {});
  }

  #begin(request: FastifyRequest): void {
    const { url, config } = request.routeOptions;
    // No spans for probes.
    if (config.quiet) return;
    const parent = this.#propagator.extract(ROOT_CONTEXT, request.headers, defaultTextMapGetter);
    const span = this.#tracer.startSpan(
      `${request.method} ${url ?? 'unmatched'}`,
      {
        kind: SpanKind.SERVER,
        attributes: {
          'http.request.method': request.method,
          'http.route': url ?? 'unmatched',
          'smart_router.request_id': request.id,
        },
      },
      parent,
    );
    this.#spans.set(request, span);
    if (span.isRecording()) request.about.trace_id = span.spanContext().traceId;
  }

  #end(request: FastifyRequest, reply: FastifyReply): void {
    const span = this.#spans.get(request);
    if (!span) return;
    this.#spans.delete(request);
    span.setAttribute('http.response.status_code', reply.statusCode);
    // The fields of the log line: call, pod, pool.
    for (const [key, value] of Object.entries(request.about))
      if (key !== 'trace_id' && ['string', 'number', 'boolean'].includes(typeof value))
        span.setAttribute(`smart_router.${key}`, value as string | number | boolean);
    if (reply.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  }

  /** A span for work that has just ended. */
  #past(
    name: string,
    seconds: number,
    attributes: Attributes,
    parent = ROOT_CONTEXT,
    outcome: 'ok' | 'error' = 'ok',
  ): void {
    const endMs = this.#clock.now();
    const kind = parent === ROOT_CONTEXT ? SpanKind.INTERNAL : SpanKind.CLIENT;
    const span = this.#tracer.startSpan(
      name,
      { kind, attributes, startTime: endMs - seconds * 1000 },
      parent,
    );
    if (outcome === 'error') span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(endMs);
  }

  #diagnosticLogger() {
    const warn = (message: string) => {
      const nowMs = this.#clock.monotonic();
      if (nowMs - this.#loggedMs < logIntervalMs) return;
      this.#loggedMs = nowMs;
      this.#log.warn(
        { reason: message.slice(0, 500) },
        'traces lost: collector unreachable or rejecting them',
      );
    };
    const nothing = () => {};
    return { error: warn, warn, info: nothing, debug: nothing, verbose: nothing };
  }
}
