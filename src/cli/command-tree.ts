/** The commands as plain data, for the completion scripts and the reference in docs/cli.md. */
import type { Command, Option } from 'commander';

export type CommandFacts = ReturnType<typeof factsOf>;

/** The program, then every command and group in the order of the help. */
export function commandTree(command: Command, path = ''): CommandFacts[] {
  const subcommands = command.commands.flatMap((sub) => commandTree(sub, `${path} ${sub.name()}`.trim()));
  return [factsOf(command, path), ...subcommands];
}

function factsOf(command: Command, path: string) {
  const help = command.createHelp();
  return {
    /** `records status`; empty for the program itself. */
    path,
    summary: command.summary(),
    options: help.visibleOptions(command).map(optionFacts),
    arguments: command.registeredArguments.map((argument) => ({
      name: argument.name(),
      description: argument.description,
      choices: argument.argChoices ?? [],
      isFile: /\bfile\b/.test(argument.description),
    })),
    /** Subcommands, for a group like `records`. */
    commands: help
      .visibleCommands(command)
      .map((sub) => ({ name: sub.name(), summary: sub.summary() || sub.description() })),
  };
}

function optionFacts(option: Option) {
  return {
    /** `--pool`, and possibly `-f`. */
    names: [option.long, option.short].filter((name) => name !== undefined && name !== null),
    /** With the value: `--pool <pool>`. */
    flags: option.flags,
    description: option.description,
    // An optional value (--wait [duration]) does not consume the next word.
    takesValue: option.required,
    choices: option.argChoices ?? [],
  };
}
