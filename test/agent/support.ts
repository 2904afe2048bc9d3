/** A sidecar in this process, in front of a real router, asked over real HTTP. */
import { onTestFinished } from 'vitest';
import { type RunningAgent, startAgent } from '../../src/agent/index.js';
import { loadAgentConfig } from '../../src/config/agent.js';
import { type Answer, type Asking, askOnce } from '../support/router.js';
import { SkippingClock } from '../support/skipping-clock.js';

export interface Sidecar extends RunningAgent {
  ask(method: string, path: string, asking?: Omit<Asking, 'method'>): Promise<Answer>;
  /** The SIDs that it lists, sorted. */
  calls(): Promise<string[]>;
  logged(msg: string): Record<string, unknown>[];
  /** Moves its clock forward. */
  skip(ms: number): void;
}

/** Reports ten times a second, and ends with the test. */
export async function startSidecar(
  routerPort: number,
  env: Record<string, string> = {},
  // A busy machine may need more than the 2 s after which it would answer without the router.
  answerWithinMs = 30_000,
): Promise<Sidecar> {
  const clock = new SkippingClock();
  const lines: Record<string, unknown>[] = [];
  const variables = {
    SMART_ROUTER_URL: `http://127.0.0.1:${routerPort}`,
    POD_NAME: 'gold-1',
    AGENT_PORT: '0',
  };
  const running = await startAgent(loadAgentConfig({ ...variables, ...env }), {
    intervalMs: 100,
    // Nor does it ask again after 2 s.
    timeoutMs: 20_000,
    answerWithinMs,
    write: (line) => void lines.push(JSON.parse(line)),
    clock,
  });
  onTestFinished(() => running.stop());
  const { hostname, port } = new URL(running.url);
  const ask: Sidecar['ask'] = (method, path, asking = {}) =>
    askOnce({ host: hostname, port, path }, { method, ...asking });
  return {
    ...running,
    ask,
    calls: async () =>
      (await ask('GET', '/calls')).body.calls.map(({ call_sid }: { call_sid: string }) => call_sid).sort(),
    skip: (ms) => clock.skip(ms),
    logged: (msg) => lines.filter((line) => line.msg === msg),
  };
}
