/**
 * Traces for OpenTelemetry, when OTEL_EXPORTER_OTLP_ENDPOINT names a collector: a span for every request (a child of the
 * caller's `traceparent`), in it one for every command of the store, and one for every record that is processed.
 *
 * Without an endpoint nothing of this is loaded and nothing is hooked in: it costs nothing. With one, spans are sent in
 * the background; a collector that is slow or away loses spans and delays nobody.
 */
import type { FastifyInstance } from 'fastify';
import type { Clock } from '../clock.js';
import type { Logger } from './log.js';

export interface TracingConfig {
  otlpEndpoint: string | undefined;
  otlpHeaders: [name: string, value: string][] | undefined;
  otelServiceName: string;
  traceRatio: number;
  podName: string;
}

export interface Tracing {
  /** To be called before there are routes. */
  hookInto(app: FastifyInstance): void;
  observeStore(operation: string, outcome: 'ok' | 'error', seconds: number): void;
  /** For the record plane. */
  readonly records: { processed(workflow: string, seconds: number): void };
  /** Sends what is left, for a few seconds at most. */
  stop(): Promise<void>;
}

export async function startTracing(
  config: TracingConfig,
  parts: { clock: Clock; log: Logger },
): Promise<Tracing | undefined> {
  const { otlpEndpoint } = config;
  if (otlpEndpoint === undefined) return undefined;
  const { OtlpTracing } = await import('./tracing-otlp.js');
  return new OtlpTracing({ ...config, otlpEndpoint }, parts);
}
