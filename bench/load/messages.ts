/** What the benchmark and its generator tell each other. */

export interface Phase {
  ratePerSecond: number;
  ms: number;
  /** Arrivals of the first part count in nothing. */
  warmUpMs: number;
}

export interface LoadRun {
  url: string;
  /** One after the other, without a pause. */
  phases: readonly Phase[];
  /** The mean of the times that calls last. */
  holdMs: number;
}

/** Half a tenth of a second of a phase, by the time at which calls should have begun. */
export interface Window {
  endMs: number;
  p99Ms: number;
  /** Refused, failed or unanswered. */
  missed: number;
}

export interface PhaseResult {
  offered: number;
  allocated: number;
  /** 503: refused. */
  shed: number;
  /** Any other answer, or a broken connection. */
  failed: number;
  /** None within the caller's patience. */
  unanswered: number;
  /** Of the calls that got a pod, from the moment at which they should have begun; NaN if there was none. */
  p50Ms: number;
  p99Ms: number;
  p999Ms: number;
  /** How late the generator itself sent, p99: what it adds to the times above. */
  lateP99Ms: number;
  /** Processor time over time: 1 is a whole core. */
  generatorCpu: number;
  windows: Window[];
}

export type FromGenerator =
  | { phaseEnded: number }
  | { results: PhaseResult[]; releases: { done: number; failed: number } }
  | { ready: true };
