/**
 * OpenTelemetry traces, if OTEL_EXPORTER_OTLP_ENDPOINT names a collector: a span for every request (a child of the caller's
 * `traceparent`), in it one for every store command, and one for every processed record.
 *
 * Without an endpoint nothing is loaded or hooked in. With one, spans are sent in the background: a slow or unreachable
 * collector loses spans and delays nothing.
 */
import type { Clock } from '../clock.js';
import type { Logger } from './log.js';
import type { OtlpTracing } from './tracing-otlp.js';

export interface TracingConfig {
  otelExporterOtlpEndpoint: string | undefined;
  otelExporterOtlpHeaders: [name: string, value: string][] | undefined;
  otelServiceName: string;
  otelTracesSamplerArg: number;
  podName: string;
}

export type Tracing = OtlpTracing;

export async function startTracing(
  config: TracingConfig,
  parts: { clock: Clock; log: Logger },
): Promise<Tracing | undefined> {
  const { otelExporterOtlpEndpoint } = config;
  if (otelExporterOtlpEndpoint === undefined) return undefined;
  const { OtlpTracing } = await import('./tracing-otlp.js');
  return new OtlpTracing({ ...config, otelExporterOtlpEndpoint }, parts);
}
