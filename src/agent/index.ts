/**
 * `smart-router agent`: the sidecar of a voice agent in any language.
 *
 * GUARANTEES
 *   The agent tells it which calls it serves, over HTTP on 127.0.0.1. The sidecar reports them to the router every 10 s and
 *   after each arrival; a report renews the lease of every call in it.
 *   A request of the agent takes 2 s at most (a drain as long as the last call), also while the router is down.
 *   A call ends at the router with its fence, so that a late end changes no later claim of the same SID.
 *   No report before the calls of this pod are known: after a restart the sidecar reads them from the router first.
 *   It keeps no state on disk and needs no rights in the cluster.
 *
 * STATES of a call
 *   live -> ending -> released    DELETE; a failed release is repeated after the next accepted report
 *   live -> lost                  the router names it as a conflict; PUT answers 409, GET /calls does not list it
 *   restored -> live              read from the router after a restart, until the agent names it again
 *
 * FAILURES
 *   Router down or replaced: calls stay here; reports are retried after 1 to 10 s. An expired lease is revived by the next
 *   report unless its pod has another call.
 *   Sidecar killed: its calls live on by their lease (15 min) and are restored.
 *   Agent killed: with AGENT_HEALTH_URL its calls end within seconds, see health-watch.ts.
 *   SIGTERM: drains and waits for the last call; a second signal ends it at once.
 *
 * WEAKNESSES
 *   The end of a call that the agent reports while the sidecar is down is missed unless the agent repeats it. The provider's
 *   final status ends such a call; otherwise it ends four hours after the restart.
 */
import { systemClock } from '../clock.js';
import type { AgentConfig } from '../config/agent.js';
import { HealthWatch } from './health-watch.js';
import { createLog } from './log.js';
import { PodCalls, type PodCallsOptions } from './pod-calls.js';
import { AgentServer } from './server.js';

const closeWithinMs = 1000;

/** For tests. */
export interface StartOptions extends Partial<Omit<PodCallsOptions, 'log'>> {
  /** Takes the log lines. Default: standard output. */
  write?: (line: string) => void;
}

export interface RunningAgent {
  readonly url: string;
  /** Drains, waits for the last call, then stops. */
  drainAndStop(): Promise<void>;
  /** Stops at once; calls live on by their lease. */
  stop(): Promise<void>;
}

/** Resolves when it listens, also while the router is down. */
export async function startAgent(config: AgentConfig, options: StartOptions = {}): Promise<RunningAgent> {
  const { clock = systemClock, write = (line) => process.stdout.write(line) } = options;
  const { podName, agentHealthUrl: healthUrl } = config;
  const log = createLog(clock, write);
  const calls = new PodCalls(config, { ...options, clock, log });
  const server = new AgentServer(podName, calls, log);
  const stopped = new AbortController();
  const stop = async () => {
    stopped.abort();
    calls.close();
    // A caller that has sent half of a request must not delay the end.
    const cancel = clock.after(closeWithinMs, () => server.cut());
    await server.close().finally(cancel);
    log('info', 'stopped', {});
  };
  const url = `http://127.0.0.1:${await server.listen(config.agentPort)}`;
  log('info', 'sidecar is listening', { url, pod: podName, router: config.url });
  calls.start();
  if (healthUrl !== undefined)
    void new HealthWatch(healthUrl, clock, log, () => calls.endAll()).run(stopped.signal);
  return { url, stop, drainAndStop: () => calls.drain().then(stop) };
}
