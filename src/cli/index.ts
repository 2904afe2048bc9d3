/** The command line: one command per file. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. */
import { Command, CommanderError } from 'commander';
import { ConfigError } from '../errors.js';
import { version } from '../version.js';
import { serve } from './serve.js';

export async function run(args: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<number> {
  let exitCode = 0;
  const program = new Command('smart-router')
    .description('Every live phone call gets a healthy voice-agent pod.')
    .version(version)
    .exitOverride();
  program
    .command('serve')
    .description('run a router')
    .action(async () => {
      exitCode = await serve(env);
    });
  try {
    await program.parseAsync([...args], { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof ConfigError) {
      for (const problem of error.problems) process.stderr.write(`smart-router: ${problem}\n`);
      return 2;
    }
    throw error;
  }
}
