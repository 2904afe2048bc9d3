/** `smart-router tiers set`: replaces the tier configuration. */
import type { Command } from 'commander';
import { isPlainObject, parseTierConfig } from '../../config/tiers.js';
import type { Tiers } from '../answers.js';
import { answerWith, type Cli, describeOperator, wholeNumber } from '../cli.js';
import { Failure, toFailure } from '../failure.js';
import { readJson } from '../input.js';
import { clean } from '../table.js';
import { showTiers } from './tiers-get.js';

export function tiersSet(parent: Command, cli: Cli): void {
  const argument = 'a file, - for standard input, or the JSON itself';
  const command = describeOperator(parent.command('set').argument('<file|-|json>', argument), {
    summary: 'replace the tier configuration',
    about:
      'Takes any of the three forms of TIER_CONFIG, and what `tiers get --json` prints: its version is then the one that may be replaced. Everything is checked here first, with all problems at once.',
    examples: [
      ['tiers set tiers.json', ''],
      ['tiers set \'{"gold":10,"standard":20}\'', ''],
      ['tiers set tiers.json --version 3', 'only if nobody has changed it since version 3'],
      ['tiers get --json | jq .tiers.gold.target=12 | smart-router tiers set -', ''],
    ],
    exits: [5],
  })
    .option('--version <n>', 'refuse if the router has another version', wholeNumber(0, 1e15))
    .option('--force', 'replace whatever version the router has, also when the file names one');
  answerWith(command, cli, async (api) => {
    const { version, force } = command.opts<{ version?: number; force?: true }>();
    const { value, from } = await readJson(cli, command.args[0] ?? '');
    const { tiers, version: read } = unwrap(value);
    const { config, problems, warnings } = parseTierConfig(tiers, from);
    if (!config) throw new Failure('usage', 'the tier configuration is wrong:', problems.map(clean));
    const expected = force ? undefined : (version ?? read);
    const headers = expected === undefined ? {} : { 'if-match': `"${expected}"` };
    const { body } = await api
      .send<Tiers>('/tiers', { method: 'PUT', body: tiers, headers, has: 'tiers' })
      .catch((error: unknown) => {
        const { code, message } = toFailure(error);
        if (code !== 'version_conflict') throw error;
        throw new Failure(
          code,
          `${message}. Not replaced: yours is for version ${expected}; --force replaces it anyway.`,
        );
      });
    return { document: body, text: showTiers(body, cli.screen.paint), warnings: warnings.map(clean) };
  });
}

/** What `tiers get --json` printed has fields beside the configuration. */
function unwrap(value: unknown): { tiers: unknown; version: number | undefined } {
  if (!isPlainObject(value) || !isPlainObject(value.tiers) || !Array.isArray(value.default_chain)) {
    return { tiers: value, version: undefined };
  }
  const { success: _, warnings: __, version, ...tiers } = value;
  return typeof version === 'number' || version === undefined
    ? { tiers, version }
    : { tiers: value, version: undefined };
}
