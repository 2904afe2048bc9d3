/** `smart-router serve`. */
import type { Command } from 'commander';
import { type Cli, describe } from '../cli.js';

export function serve(parent: Command, cli: Cli): void {
  const command = describe(parent.command('serve'), {
    summary: 'run a router until SIGTERM or SIGINT',
    about:
      'Configured by environment variables: see `smart-router config` and docs/configuration.md. Its log goes to stdout, one JSON document per line unless LOG_FORMAT=pretty.',
    json: 'LOG_FORMAT=json, and a failure to start is a JSON document too',
    examples: [
      ['serve', ''],
      ['config && smart-router serve', 'check first'],
      ['doctor', 'if it does not start'],
    ],
  });
  command.action(async () => {
    // Loaded only now: the server's modules take ten times as long as everything else here.
    cli.resident = true;
    const { json } = command.opts<{ json?: true }>();
    const { serve: run } = await import('../serve.js');
    cli.exitCode = await run(json ? { ...cli.env, LOG_FORMAT: 'json' } : cli.env);
  });
}
