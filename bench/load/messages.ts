/** Messages between the benchmark and its generator. */

export interface Phase {
  ratePerSecond: number;
  ms: number;
  /** Arrivals of the warm-up do not count. */
  warmUpMs: number;
}

export interface LoadRun {
  url: string;
  /** In sequence, without a pause. */
  phases: readonly Phase[];
  /** Mean length of a call. */
  holdMs: number;
}

export const windowMs = 50;

/** The calls that should have begun in one window of a phase. */
export interface Window {
  p99Ms: number;
  /** Rejected, failed or unanswered. */
  missed: number;
}

export interface PhaseResult {
  offered: number;
  allocated: number;
  /** 503: rejected. */
  shed: number;
  /** Any other answer, or a broken connection. */
  failed: number;
  /** No answer before the timeout of the caller. */
  unanswered: number;
  /** Of the calls that got a pod, from the moment at which they should have begun; NaN without any. */
  p50Ms: number;
  p99Ms: number;
  p999Ms: number;
  /** How late the generator itself sent, p99; part of the times above. */
  lateP99Ms: number;
  /** Processor time over time: 1 is a whole core. */
  generatorCpu: number;
  /** From the end of the warm-up on, without a gap. */
  windows: Window[];
}

export type FromGenerator =
  | { phaseEnded: number }
  | { results: PhaseResult[]; releases: { done: number; failed: number } }
  | { ready: true };
