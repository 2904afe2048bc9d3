/** `smart-router merchants import`: restores what `merchants export` wrote. */
import type { Command } from 'commander';
import { type Cell, table } from '../../terminal/table.js';
import type { Colour, Paint } from '../../terminal/text.js';
import { count } from '../ages.js';
import type { Merchant } from '../answers.js';
import { answerWith, type Cli, describeOperator, type Outcome } from '../cli.js';
import { Failure, toFailure } from '../failure.js';
import { readJson } from '../input.js';
import { type Change, changesOf, configurations, readConfigurations } from '../merchant-backup.js';
import { withApply } from '../records.js';

/** A hundred thousand merchants. */
const mostBytes = 16 * 1024 * 1024;

export function merchantsImport(parent: Command, cli: Cli): void {
  const argument = 'a file, - for standard input, or the JSON itself';
  const described = describeOperator(parent.command('import').argument('<file|-|json>', argument), {
    summary: 'write merchants from a backup; a dry run unless --apply is given',
    about:
      'Everything is checked first, with all problems at once. Then each merchant that differs is written, atomically, one after the other; a failure in between says how many were written, and the same command does the rest. Merchants that are not in the file stay as they are.',
    examples: [
      ['merchants import merchants.json', 'what would change'],
      ['merchants import merchants.json --apply', 'do it'],
      ['gunzip -c merchants.json.gz | smart-router merchants import - --apply', ''],
    ],
  });
  const command = withApply(described);
  answerWith(command, cli, async (api) => {
    const { apply = false } = command.opts<{ apply?: true }>();
    const { value, from } = await readJson(cli, command.args[0] ?? '', mostBytes);
    const wanted = readConfigurations(value, from);
    const { body } = await api.send<{ merchants: Merchant[] }>('/merchants', { has: 'merchants' });
    const before = configurations(body.merchants);
    const changes = changesOf(before, wanted);
    const kept = Object.keys(before).filter((id) => !Object.hasOwn(wanted, id));
    const toWrite = changes.filter(({ change }) => change !== 'unchanged');
    let written = 0;
    try {
      for (const { merchant_id, after } of apply ? toWrite : []) {
        const path = `/merchants/${encodeURIComponent(merchant_id)}`;
        await api.send<Merchant>(path, { method: 'PUT', body: after, has: 'merchant_id' });
        written += 1;
      }
    } catch (error) {
      const { code, message } = toFailure(error);
      const failed = toWrite[written]?.merchant_id;
      const done = `${written} of ${count(toWrite.length, 'merchant')} written; ${failed} failed: ${message}`;
      return outcomeOf(changes, kept, !apply, cli.screen.paint, new Failure(code, `${done} Run it again.`));
    }
    return outcomeOf(changes, kept, !apply, cli.screen.paint);
  });
}

const colours: Readonly<Record<Change['change'], Colour | undefined>> = {
  added: 'green',
  changed: 'yellow',
  unchanged: 'dim',
};

function outcomeOf(
  changes: readonly Change[],
  kept: readonly string[],
  dryRun: boolean,
  paint: Paint,
  failure?: Failure,
): Outcome {
  const of = (change: Change['change']) => changes.filter((one) => one.change === change).length;
  const counts = { added: of('added'), changed: of('changed'), unchanged: of('unchanged') };
  const rows = changes.map(({ merchant_id, change, before, after }): Cell[] => [
    merchant_id,
    { text: change, colour: colours[change] },
    before === null || change === 'unchanged' ? '-' : JSON.stringify(before),
    JSON.stringify(after),
  ]);
  const columns = ['MERCHANT', 'CHANGE', 'BEFORE', 'AFTER'].map((head) => ({ head }));
  const total = `${counts.added} added, ${counts.changed} changed, ${counts.unchanged} unchanged`;
  const rest = kept.length > 0 ? ` ${count(kept.length, 'merchant')} not in the file: left as before.` : '';
  const said = dryRun ? `A dry run: ${total}. Nothing was changed; --apply does it.` : `Done: ${total}.`;
  return {
    document: { dry_run: dryRun, ...counts, not_in_file: kept, merchants: changes },
    text: `${rows.length > 0 ? `${table(columns, rows, paint)}\n` : ''}${failure ? '' : `${said}${rest}\n`}`,
    failure,
  };
}
