/** `smart-router agent`: runs the sidecar of a voice agent until a signal. */
import { setFlagsFromString } from 'node:v8';
import type { Command } from 'commander';
import { systemClock } from '../../clock.js';
import { loadAgentConfig } from '../../config/agent.js';
import { type Cli, describe } from '../cli.js';
import { untilAborted, untilSignal } from '../signals.js';

const exitDelayMs = 500;
/** A heap that does not grow with each burst, and no optimized code: 53 MB instead of 69 MB after 500 calls. */
const memoryFlags = ['--semi-space-growth-factor=1', '--optimize-for-size', '--no-opt'];

export function agent(parent: Command, cli: Cli): void {
  const command = describe(parent.command('agent'), {
    summary: 'run the sidecar of a voice agent until SIGTERM',
    about:
      'Listens on 127.0.0.1 (AGENT_PORT, 9357) for the calls that the voice agent of this pod serves, and reports, renews and releases them at the router. On SIGTERM it drains the pod and waits for the last call; a second signal ends it at once. Needs POD_NAME; see docs/agents.md. The key is read from SMART_ROUTER_API_KEY or SMART_ROUTER_API_KEY_FILE. Logs go to stdout, one JSON document per line.',
    json: 'print a failure to start as a JSON document',
    examples: [
      ['agent', ''],
      ['agent --json', 'a failure to start is a JSON document'],
    ],
  });
  command.action(async () => {
    cli.resident = true;
    const config = loadAgentConfig(cli.env);
    // Before the first await: process 1 of a container ignores a signal without a listener.
    const { signal } = untilSignal();
    for (const flag of memoryFlags) setFlagsFromString(flag);
    const { startAgent } = await import('../../agent/index.js');
    const running = await startAgent(config);
    await untilAborted(signal);
    await running.drainAndStop();
    // A connection that does not close must not keep the process alive.
    systemClock.after(exitDelayMs, () => process.exit(0), { unref: true });
  });
}
