/** `smart-router completion`: a script that lets a shell complete the commands. */
import { Argument, type Command } from 'commander';
import { answer, type Cli, describe } from '../cli.js';
import { commandTree } from '../command-tree.js';
import { completionScript, type Shell, shells } from '../completion-scripts.js';

export function completion(parent: Command, cli: Cli): void {
  const shell = new Argument('<shell>', 'which shell').choices([...shells]);
  const command = describe(parent.command('completion').addArgument(shell), {
    summary: 'print a script that completes commands and options in bash, zsh or fish',
    about:
      'Made from the commands of this version, so load it with each new shell. It completes commands, options and the values that are known without a router.',
    examples: [
      ['completion bash', 'look at it'],
      ['completion bash >> ~/.bash_completion', 'for every new bash'],
      ['completion fish > ~/.config/fish/completions/smart-router.fish', 'for every new fish'],
    ],
  });
  answer(command, cli, async () => {
    const [name] = command.args;
    const script = completionScript(name as Shell, commandTree(parent));
    return { document: { shell: name, script }, text: script };
  });
}
