/** All commands, one file per noun in commands/. A test compares them with docs/cli.md. */
import type { Command } from 'commander';
import { type Cli, createProgramOf } from './cli.js';
import { agent } from './commands/agent.js';
import { alerts } from './commands/alerts.js';
import { audit } from './commands/audit.js';
import { allocate, calls, release } from './commands/calls.js';
import { completion } from './commands/completion.js';
import { config } from './commands/config.js';
import { demo } from './commands/demo.js';
import { doctor } from './commands/doctor.js';
import { events } from './commands/events.js';
import { explain } from './commands/explain.js';
import { merchants } from './commands/merchants.js';
import { drain, pods, undrain } from './commands/pods.js';
import { records } from './commands/records.js';
import { removals } from './commands/removals.js';
import { serve } from './commands/serve.js';
import { status } from './commands/status.js';
import { tiers } from './commands/tiers.js';
import { top } from './commands/top.js';

export function createProgram(cli: Cli): Command {
  return createProgramOf(cli, {
    'Run:': [serve, agent, demo, config, doctor],
    'Look:': [status, alerts, pods, calls, explain, events, top, audit],
    'Act:': [allocate, release, drain, undrain, removals, records],
    'Configure a running router:': [tiers, merchants],
    'Help:': [completion],
  });
}
