/** `smart-router merchants set`: which pods the calls of a merchant get. */
import type { Command } from 'commander';
import { parseMerchantConfig } from '../../calls/chain.js';
import { clean } from '../../terminal/text.js';
import type { Merchant } from '../answers.js';
import { answerWith, type Cli, describeOperator } from '../cli.js';
import { Failure } from '../failure.js';
import { readJson } from '../input.js';
import { showMerchant, skippedSteps } from '../merchant-table.js';

interface Options {
  tier?: string;
  pool?: string;
  fallback?: string;
}

export function merchantsSet(parent: Command, cli: Cli): void {
  const command = describeOperator(
    parent
      .command('set')
      .argument('<id>', 'id of the merchant')
      .argument('[file|-|json]', 'all of it at once, instead of the options'),
    {
      summary: 'write the configuration of a merchant',
      about: 'What is not named is not kept: this replaces the whole entry.',
      examples: [
        ['merchants set acme --pool acme', "acme's own pods first, then the default chain"],
        ['merchants set acme --tier standard', 'the default chain from standard on'],
        ['merchants set acme --fallback merchant:acme,overflow', 'these pools and no others'],
        ['merchants set acme \'{"tier":"gold"}\'', ''],
      ],
    },
  )
    .option('--tier <tier>', 'start the default chain here')
    .option('--pool <id>', 'try the merchant pool of this name first')
    .option('--fallback <steps>', 'tiers or merchant:ID, separated by commas, instead of the default chain');
  answerWith(command, cli, async (api) => {
    const [id = '', json] = command.args;
    const input = await readInput(cli, json, command.opts<Options>());
    const { config, problems } = parseMerchantConfig(input, id);
    if (!config) throw new Failure('usage', 'the merchant configuration is wrong:', problems.map(clean));
    const { body } = await api.send<Merchant>(`/merchants/${encodeURIComponent(id)}`, {
      method: 'PUT',
      body: config,
      has: 'merchant_id',
    });
    return { document: body, text: showMerchant(body, cli.screen.paint), warnings: skippedSteps(body) };
  });
}

async function readInput(
  cli: Cli,
  json: string | undefined,
  { tier, pool, fallback }: Options,
): Promise<unknown> {
  const options = tier !== undefined || pool !== undefined || fallback !== undefined;
  if (options === (json !== undefined)) {
    throw new Failure(
      'usage',
      'give either JSON or at least one of --tier, --pool, --fallback; {} clears the entry',
    );
  }
  if (json !== undefined) return (await readJson(cli, json)).value;
  const steps = fallback?.split(',').map((step) => step.trim());
  return {
    ...(tier === undefined ? {} : { tier }),
    ...(pool === undefined ? {} : { pool: pool.replace(/^merchant:/, '') }),
    ...(steps === undefined ? {} : { fallback: steps }),
  };
}
