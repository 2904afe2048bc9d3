/** `smart-router config`: what the environment means. */
import { type Command, Option } from 'commander';
import { type ConfigRow, describeConfig, loadConfig, type Mode } from '../../config.js';
import { ConfigError } from '../../errors.js';
import { count } from '../ages.js';
import { answer, type Cli, describe } from '../cli.js';
import { Failure } from '../failure.js';
import type { Paint } from '../screen.js';
import { type Cell, table } from '../table.js';

export function config(parent: Command, cli: Cli): void {
  const command = describe(parent.command('config'), {
    summary: 'show the effective configuration, with secrets hidden, and every problem in it',
    examples: [
      ['config', ''],
      ['config --mode demo', 'what `demo` would use'],
      ['config --json | jq ".values[] | select(.source==\\"environment\\")"', 'only what is set'],
    ],
  }).addOption(new Option('--mode <mode>', 'of which command').choices(['serve', 'demo']).default('serve'));
  answer(command, cli, async () => {
    const { mode } = command.opts<{ mode: Mode }>();
    const values = describeConfig(cli.env, mode, cli.clock);
    const { warnings, problems } = judge(cli, mode);
    const message = problems.length === 1 ? (problems[0] ?? '') : `${count(problems.length, 'problem')}:`;
    return {
      document: { mode, values, warnings, problems },
      text: show(values, cli.screen.paint),
      warnings,
      failure:
        problems.length > 0
          ? new Failure('configuration', message, problems.length === 1 ? [] : problems)
          : undefined,
    };
  });
}

function judge(cli: Cli, mode: Mode): { warnings: readonly string[]; problems: readonly string[] } {
  try {
    const config = loadConfig(cli.env, mode, cli.clock);
    return { warnings: config.warnings, problems: [] };
  } catch (error) {
    if (error instanceof ConfigError) return { warnings: [], problems: error.problems };
    throw error;
  }
}

function show(values: readonly ConfigRow[], paint: Paint): string {
  const rows: Cell[][] = [];
  let section = '';
  for (const row of values) {
    if (row.section !== section) {
      if (section !== '') rows.push([]);
      rows.push([{ text: row.section, colour: 'bold' }]);
      section = row.section;
    }
    const set = row.source === 'environment';
    const value: Cell = row.value === '' ? { text: '-', colour: 'dim' } : row.value;
    rows.push([`  ${row.name}`, { text: row.source, colour: set ? 'green' : 'dim' }, value]);
  }
  return table([{ head: 'VARIABLE' }, { head: 'SOURCE' }, { head: 'VALUE' }], rows, paint);
}
