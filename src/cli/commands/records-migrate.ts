/** `smart-router records migrate`: the database, brought up to date. */
import type { Command } from 'commander';
import type { Cli } from '../cli.js';
import { answerRecords, describeRecords } from '../records.js';

export function recordsMigrate(parent: Command, cli: Cli): void {
  const command = describeRecords(parent.command('migrate'), {
    summary: 'create or update the schema smart_router',
    about:
      'Safe to repeat, also by several at once. `serve` does the same when it starts; do it here where the router may not create schemas. With --with-workflows it also creates the tables of the shipped workflows, which `serve` never does in your database. Existing tables are never changed.',
    examples: [
      ['records migrate', ''],
      ['records migrate --with-workflows', 'also sitemap_files and pages'],
      ['doctor', 'what is missing'],
    ],
  });
  command.option('--with-workflows', 'create the tables of the shipped workflows too');
  answerRecords(command, cli, async ({ pool }) => {
    const { migrateRecords, shippedProblems } = await import('../../main/workflows.js');
    const { applied, kept } = await migrateRecords(pool, {
      withWorkflows: command.opts<{ withWorkflows?: boolean }>().withWorkflows ?? false,
    });
    const done = applied.length > 0 ? applied.map((name) => `applied ${name}\n`).join('') : 'up to date\n';
    const problems = kept.length > 0 ? await shippedProblems(pool) : [];
    return {
      document: { applied, kept },
      warnings: problems.map(({ text, advice }) => `${text}. ${advice}`),
      text: done + kept.map((table) => `kept    ${table}: it was there before\n`).join(''),
    };
  });
}
