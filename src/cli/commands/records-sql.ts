/** `smart-router records sql`: what brings stuck rows back where no process of ours runs. */
import { type Command, Option } from 'commander';
import { answer, type Cli, describe } from '../cli.js';
import { files } from '../deploy-postgres.generated.js';

/** What is printed, by the option that asks for it. */
const variants = {
  trigger: 'trigger.sql',
  cron: 'pg_cron.sql',
  script: 'zombie-cleanup.sh',
} as const;

type Variant = keyof typeof variants;

export function recordsSql(parent: Command, cli: Cli): void {
  const command = describe(parent.command('sql'), {
    summary: 'print the clean-up that runs inside the database, without our process',
    about:
      'Without options it is the function smart_router.reset_stuck, to be installed once with psql; again after an update. The options print what calls it: a trigger, lines for pg_cron, or a script for cron and psql. They are written for the tables of the shipped workflows: change the names for yours. Nothing is connected to, nothing is changed.',
    examples: [
      ['records sql | psql "$DATABASE_URL" -v ON_ERROR_STOP=1', 'install the function'],
      ['records sql --cron', 'lines for the extension pg_cron'],
      ['records sql --trigger', 'no scheduler: whoever writes to the table cleans it'],
      ['records sql --script > zombie-cleanup.sh', 'for cron and psql'],
    ],
    json: 'print one JSON document: name and text of the file',
  })
    .addOption(new Option('--trigger', 'the trigger that calls it').conflicts(['cron', 'script']))
    .addOption(new Option('--cron', 'the lines for pg_cron that call it').conflicts(['trigger', 'script']))
    .addOption(new Option('--script', 'the shell script that calls it').conflicts(['trigger', 'cron']));
  answer(command, cli, async () => {
    const given = command.opts<Partial<Record<Variant, true>>>();
    const variant = (Object.keys(variants) as Variant[]).find((name) => given[name]);
    const file = variant === undefined ? 'zombie_cleanup.sql' : variants[variant];
    return { document: { file, text: files[file] }, text: files[file] };
  });
}
