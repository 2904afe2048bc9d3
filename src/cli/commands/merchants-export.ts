/** `smart-router merchants export`: a backup of all merchants. */
import { rename, rm, writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { count } from '../ages.js';
import type { Merchant } from '../answers.js';
import { answerWith, type Cli, describeOperator, toJson } from '../cli.js';
import { Failure, oneLine } from '../failure.js';
import { configurations } from '../merchant-backup.js';

export function merchantsExport(parent: Command, cli: Cli): void {
  const command = describeOperator(
    parent.command('export').argument('[file]', 'where to write; standard output if left out'),
    {
      summary: 'write the configuration of all merchants as JSON, for a backup',
      about:
        '`merchants import` reads it. Tiers are not in it: `tiers get --json` and `tiers set` do the same for them.',
      examples: [
        ['merchants export merchants.json', ''],
        ['merchants export | gzip > merchants.json.gz', ''],
      ],
    },
  );
  answerWith(command, cli, async (api) => {
    const { body } = await api.send<{ merchants: Merchant[] }>('/merchants', { has: 'merchants' });
    const document = { merchants: configurations(body.merchants) };
    const [file] = command.args;
    if (file === undefined) return { document, text: `${toJson(document)}\n` };
    await writeWhole(file, `${toJson(document)}\n`);
    return { document, text: `${count(body.merchants.length, 'merchant')} written to ${file}\n` };
  });
}

/** Complete before it gets its name: a full disk leaves the backup of yesterday. */
async function writeWhole(file: string, text: string): Promise<void> {
  const draft = `${file}.${process.pid}.tmp`;
  try {
    await writeFile(draft, text);
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw new Failure('failed', `cannot write ${file}: ${oneLine((error as Error).message)}`);
  }
}
