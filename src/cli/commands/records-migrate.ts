/** `smart-router records migrate`: the database, brought up to date. */
import type { Command } from 'commander';
import type { Cli } from '../cli.js';
import { answerRecords, describeRecords } from '../records.js';

export function recordsMigrate(parent: Command, cli: Cli): void {
  const command = describeRecords(parent.command('migrate'), {
    summary: 'create or update the schema smart_router, and the tables of the shipped workflows',
    about:
      'Safe to repeat, also by several at once. `serve` does the same when it starts; do it here where the router may not create schemas. Tables of your own are never changed.',
    examples: [
      ['records migrate', ''],
      ['doctor', 'what is missing'],
    ],
  });
  answerRecords(command, cli, async ({ pool, config }) => {
    const { migrateRecords } = await import('../../records-workflows.js');
    const { applied, kept } = await migrateRecords(pool, config);
    const done = applied.length > 0 ? applied.map((name) => `applied ${name}\n`).join('') : 'up to date\n';
    return {
      document: { applied, kept },
      text: done + kept.map((table) => `kept    ${table}: it was there before\n`).join(''),
    };
  });
}
