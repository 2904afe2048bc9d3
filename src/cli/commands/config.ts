/** `smart-router config`: the effective configuration. */
import { Option } from 'commander';
import { type ConfigRow, describeConfig, loadConfig, type Mode } from '../../config/config.js';
import { ConfigError } from '../../errors.js';
import { type Cell, table } from '../../terminal/table.js';
import { type Cli, command } from '../cli.js';
import { toFailure } from '../failure.js';

export const config = command<{ mode: Mode }>({
  name: 'config',
  summary: 'show the effective configuration, with secrets hidden, and every problem in it',
  examples: [
    ['config', ''],
    ['config --mode demo', 'the configuration of the routers of `demo`'],
    ['config --json | jq ".values[] | select(.source==\\"environment\\")"', 'only variables that are set'],
  ],
  options: [
    new Option('--mode <mode>', 'the command whose configuration to show')
      .choices(['serve', 'demo'])
      .default('serve'),
  ],
  async run({ cli, options: { mode } }) {
    const env = mode === 'demo' ? await demoEnv(cli.env) : cli.env;
    const values = described(cli, env, mode);
    let warnings: readonly string[] = [];
    let problems: readonly string[] = [];
    try {
      ({ warnings } = loadConfig(env, mode, cli.clock));
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      ({ problems } = error);
    }
    return {
      document: { mode, values, warnings, problems },
      text: show(values),
      warnings,
      failure: problems.length > 0 ? toFailure(new ConfigError(problems)) : undefined,
    };
  },
});

/** `demo`: a value that the demo sets, regardless of the environment. */
type Row = Omit<ConfigRow, 'source'> & { readonly source: ConfigRow['source'] | 'demo' };

function described(cli: Cli, env: NodeJS.ProcessEnv, mode: Mode): Row[] {
  const rows = describeConfig(env, mode, cli.clock);
  if (env === cli.env) return rows;
  const before = describeConfig(cli.env, mode, cli.clock);
  return rows.map((row, i): Row => {
    const given = before[i];
    // Some defaults differ on every read (POD_NAME): compare the variables, too.
    const isChanged = (env[row.name] ?? '') !== (cli.env[row.name] ?? '') && row.value !== given?.value;
    return isChanged ? { ...row, source: 'demo' } : (given ?? row);
  });
}

/** Loaded here: the demo includes a cluster. */
async function demoEnv(env: NodeJS.ProcessEnv): Promise<NodeJS.ProcessEnv> {
  const { routerEnvOf } = await import('../../demo/setup.js');
  return routerEnvOf(env);
}

function show(values: readonly Row[]): string {
  const rows: Cell[][] = [];
  let section = '';
  for (const row of values) {
    if (row.section !== section) {
      if (section !== '') rows.push([]);
      rows.push([{ text: row.section, colour: 'bold' }]);
      section = row.section;
    }
    const isSet = row.source !== 'default';
    const value: Cell = row.value === '' ? { text: '-', colour: 'dim' } : row.value;
    rows.push([`  ${row.name}`, { text: row.source, colour: isSet ? 'green' : 'dim' }, value]);
  }
  return table(['VARIABLE', 'SOURCE', 'VALUE'], rows);
}
