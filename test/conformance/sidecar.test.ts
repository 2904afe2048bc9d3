import { type RunningAgent, startAgent } from '../../src/agent/index.js';
import { loadAgentConfig } from '../../src/config/agent.js';
import { askOnce } from '../support/router.js';
import { until } from '../support/until.js';
import type { Driver, Fields, Operation, Session, Target } from './format.js';
import { conformance } from './suite.js';

/** The sidecar, asked over HTTP as a voice agent asks it. test/cli/agent.test.ts sends the signals to its process. */
class SidecarSession implements Session {
  readonly #running: RunningAgent;
  #exit: Promise<void> | undefined;

  constructor(running: RunningAgent) {
    this.#running = running;
  }

  async run(op: Operation, args: Fields): Promise<Fields> {
    const path = `/calls/${encodeURIComponent(String(args.call))}`;
    switch (op) {
      case 'begin_call':
        return this.ask('PUT', path, JSON.stringify({ fence: args.fence }));
      case 'end_call':
        return this.ask('DELETE', path);
      case 'calls':
        return { calls: await this.#calls() };
      case 'lost':
        await until(async () => !(await this.#calls()).includes(String(args.call)), `${args.call} is lost`);
        return { reason: 'conflict' };
      case 'drain_agent':
        return this.ask('POST', '/drain');
      case 'terminate':
        this.#exit = this.#running.drainAndStop();
        return {};
      case 'exited':
        await this.#exit;
        return {};
      default:
        throw new Error(`the driver does not support ${op}`);
    }
  }

  async ask(method: string, path: string, body?: string): Promise<Fields> {
    const { hostname: host, port } = new URL(this.#running.url);
    const answer = await askOnce({ host, port, path }, { method, ...(body === undefined ? {} : { body }) });
    const { success: _, code, ...fields } = answer.body as Fields;
    return code === undefined ? fields : { ...fields, error: code };
  }

  async close(): Promise<void> {
    await this.#running.stop();
  }

  async #calls(): Promise<string[]> {
    const { calls } = (await this.ask('GET', '/calls')) as { calls: { call_sid: string }[] };
    return calls.map(({ call_sid }) => call_sid).sort();
  }
}

async function open({ url, apiKey, client, agent }: Target): Promise<Session> {
  const config = loadAgentConfig({
    SMART_ROUTER_URL: url,
    SMART_ROUTER_API_KEY: apiKey,
    POD_NAME: agent?.pod ?? '',
    AGENT_PORT: '0',
  });
  const running = await startAgent(config, {
    write: () => {},
    intervalMs: agent?.interval_ms ?? 0,
    timeoutMs: client.timeout_ms,
  });
  const session = new SidecarSession(running);
  // It has read the calls of its pod: those of the case are new to it.
  await until(async () => (await session.ask('GET', '/ready')).status === 'ready', 'the sidecar is ready');
  return session;
}

const sidecar: Driver = {
  name: 'sidecar',
  operations: [
    ...(['agent', 'begin_call', 'end_call', 'calls', 'lost'] as const),
    ...(['drain_agent', 'terminate', 'exited'] as const),
  ],
  open,
};

conformance(sidecar);
