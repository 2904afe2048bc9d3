// Generates parts of docs/cli.md from the commands: the list of commands, the exit codes, and the options of each command.
// They are between marks; the rest of the page is written by hand.
import { cell, filled, table } from './docs-marks.mjs';

/** @typedef {{ names: readonly string[], flags: string, description: string }} OptionFacts */
/**
 * @typedef {{ path: string, summary: string, options: readonly OptionFacts[], commands: readonly { name: string }[],
 *   arguments: readonly { name: string, description: string }[] }} CommandFacts
 */

/** Options of every command that talks to a router; the page has a section for them. */
const everywhere = ['--url', '--timeout', '--help'];

/** @param {readonly CommandFacts[]} tree */
export function commandsTable(tree) {
  const rows = tree
    .filter(({ path, commands }) => path !== '' && commands.length === 0)
    .map(({ path, summary }) => [`[\`${path}\`](#${path.replaceAll(' ', '-')})`, cell(summary)]);
  return table(['command', 'what it does'], rows);
}

/** @param {Readonly<Record<string, string>>} meanings */
export function exitCodesTable(meanings) {
  const rows = Object.entries(meanings).map(([code, meaning]) => [code, cell(meaning)]);
  return table(['exit code', 'meaning'], rows);
}

/** @param {CommandFacts} command */
export function optionsTable({ options, arguments: given }) {
  const own = options.filter(({ names }) => !names.some((name) => everywhere.includes(name)));
  const all = [...given, ...own.map(({ flags, description }) => ({ name: flags, description }))];
  const rows = all.map(({ name, description }) => [`\`${name}\``, cell(description)]);
  return table(['argument or option', 'meaning'], rows);
}

/**
 * Returns the page with its generated parts. A command's section without marks gets them at its end.
 * @param {string} page
 * @param {readonly CommandFacts[]} tree
 * @param {Readonly<Record<string, string>>} meanings
 */
export function withReference(page, tree, meanings) {
  const [intro = '', ...sections] = page.split(/^(?=## [`A-Z])/m);
  const parts = sections.map((section) => {
    const title = /^## (.*)/.exec(section)?.[1] ?? '';
    if (title === 'Exit codes') return filled(section, 'exit codes', exitCodesTable(meanings));
    const command = tree.find(({ path }) => `\`${path}\`` === title);
    return command ? filled(section, 'options', optionsTable(command)) : section;
  });
  return [filled(intro, 'commands', commandsTable(tree)), ...parts].join('');
}
