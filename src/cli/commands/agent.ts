/** `smart-router agent`: runs the sidecar of a voice agent until a signal. */
import { setFlagsFromString } from 'node:v8';
import { loadAgentConfig } from '../../config/agent.js';
import { command } from '../cli.js';
import { exitSoon, untilAborted, untilSignal } from '../signals.js';

/** A heap that does not grow with each burst, and no optimized code: 53 MB instead of 69 MB after 500 calls. */
const memoryFlags = ['--semi-space-growth-factor=1', '--optimize-for-size', '--no-opt'];

export const agent = command({
  name: 'agent',
  summary: 'run the sidecar of a voice agent until SIGTERM',
  about:
    'Listens on 127.0.0.1 (AGENT_PORT, 9357) for the calls that the voice agent of this pod serves, and reports, renews and releases them at the router. On SIGTERM it drains the pod and waits for the last call; a second signal ends it at once. Needs POD_NAME; see docs/agents.md. The key is read from SMART_ROUTER_API_KEY or SMART_ROUTER_API_KEY_FILE. Logs go to stdout, one JSON document per line.',
  json: 'print a failure to start as a JSON document',
  examples: [
    ['agent', ''],
    ['agent --json', 'a failure to start is a JSON document'],
  ],
  async run({ cli }) {
    cli.resident = true;
    const config = loadAgentConfig(cli.env);
    // Before the first await: process 1 of a container ignores a signal without a listener.
    const { signal } = untilSignal();
    for (const flag of memoryFlags) setFlagsFromString(flag);
    const { startAgent } = await import('../../agent/index.js');
    const running = await startAgent(config);
    await untilAborted(signal);
    await running.drainAndStop();
    exitSoon();
    return undefined;
  },
});
