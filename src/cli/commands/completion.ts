/** `smart-router completion`: a script that lets a shell complete the commands. */
import { Argument, type Command } from 'commander';
import { answer, type Cli, describe } from '../cli.js';
import { type CommandFacts, commandTree } from '../command-tree.js';

export function completion(parent: Command, cli: Cli): void {
  const shell = new Argument('<shell>', 'which shell').choices([...shells]);
  const command = describe(parent.command('completion').addArgument(shell), {
    summary: 'print a script that completes commands and options in bash, zsh or fish',
    about:
      'Generated from the commands of this version, so load it in each new shell. It completes commands, options and fixed values, without calling a router.',
    examples: [
      ['completion bash', 'show it'],
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

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

export function completionScript(shell: Shell, tree: readonly CommandFacts[]): string {
  if (shell === 'bash') return bash(tree);
  return shell === 'zsh' ? zsh(tree) : fish(tree);
}

/** Single quotes, for bash and zsh. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
/** Single quotes, for fish, which unescapes \\ and \' inside them. */
const quotedForFish = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

const optionNames = ({ options }: CommandFacts) => options.flatMap(({ names }) => names);

/** Options that take a value: the next word is not a command. */
function valueOptions(tree: readonly CommandFacts[]): string[] {
  const names = tree.flatMap(({ options }) =>
    options.filter(({ takesValue }) => takesValue).flatMap((option) => option.names),
  );
  return [...new Set(names)].sort();
}

function bash(tree: readonly CommandFacts[]): string {
  const groups = tree.filter(({ commands }) => commands.length > 0).map(({ path }) => path);
  const words = tree.map((command) => {
    const { path, commands, arguments: given } = command;
    const plain = [...commands.map(({ name }) => name), ...given.flatMap(({ choices }) => choices)];
    const files = given.some(({ isFile }) => isFile) ? ' files=1' : '';
    return `    ${quoted(path)}) words=${quoted(plain.join(' '))} options=${quoted(optionNames(command).join(' '))}${files} ;;`;
  });
  const choices = tree.flatMap(({ path, options }) =>
    options
      .filter((option) => option.takesValue)
      .flatMap((option) =>
        option.names.map(
          (name) => `    ${quoted(`${path} ${name}`)}) words=${quoted(option.choices.join(' '))} ;;`,
        ),
      ),
  );
  const inGroups = tree
    .filter(({ path }) => path !== '')
    .map(({ path }) => quoted(path))
    .join('|');
  return `# bash completion for smart-router.
#   source <(smart-router completion bash)
_smart_router() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]}
  local path='' words='' options='' files='' word i skip=''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    if [[ -n $skip ]]; then skip=''; continue; fi
    case $word in
    ${valueOptions(tree).join('|')}) skip=1; continue ;;
    -*) continue ;;
    esac
    case "\${path:+$path }$word" in
    ${inGroups}) path="\${path:+$path }$word" ;;
    esac
  done
  COMPREPLY=()
  if [[ -n $skip ]]; then
    case "$path $previous" in
${choices.join('\n')}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current")) || :
    return 0
  fi
  case $path in
${words.join('\n')}
  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current")) || :
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current")) || :
  elif [[ -n $files ]]; then
    COMPREPLY=($(compgen -f -- "$current")) || :
  fi
}
complete -o bashdefault -F _smart_router smart-router
# Commands with subcommands: ${groups.filter((path) => path !== '').join(', ')}.
`;
}

/** An entry of _describe: `name:description`. */
const described = (name: string, what: string) => quoted(`${name.replaceAll(':', '\\:')}:${what}`);

function zsh(tree: readonly CommandFacts[]): string {
  const cases = tree.map(({ path, commands, options, arguments: given }) => {
    const plain = [
      ...commands.map(({ name, summary }) => described(name, summary)),
      ...given.flatMap(({ choices, description }) => choices.map((choice) => described(choice, description))),
    ];
    const named = options.flatMap(({ names, description }) =>
      names.map((name) => described(name, description)),
    );
    const files = given.some(({ isFile }) => isFile) ? '; files=1' : '';
    return `    ${quoted(path)}) words_=(${plain.join(' ')}); options_=(${named.join(' ')})${files} ;;`;
  });
  const choices = tree.flatMap(({ path, options }) =>
    options
      .filter((option) => option.takesValue && option.choices.length > 0)
      .flatMap((option) =>
        option.names.map(
          (name) => `    ${quoted(`${path} ${name}`)}) compadd -- ${option.choices.map(quoted).join(' ')} ;;`,
        ),
      ),
  );
  const paths = tree.filter(({ path }) => path !== '').map(({ path }) => quoted(path));
  return `#compdef smart-router
# zsh completion for smart-router. Put it in a folder of $fpath as _smart-router, or:
#   source <(smart-router completion zsh)
_smart_router() {
  local path_='' word skip='' files='' i
  local -a words_ options_
  for ((i = 2; i < CURRENT; i++)); do
    word=\${words[i]}
    if [[ -n $skip ]]; then skip=''; continue; fi
    case $word in
    ${valueOptions(tree).join('|')}) skip=1; continue ;;
    -*) continue ;;
    esac
    case "\${path_:+$path_ }$word" in
    ${paths.join('|')}) path_="\${path_:+$path_ }$word" ;;
    esac
  done
  if [[ -n $skip ]]; then
    case "$path_ \${words[CURRENT - 1]}" in
${choices.join('\n')}
    esac
    return
  fi
  case $path_ in
${cases.join('\n')}
  esac
  if [[ \${words[CURRENT]} == -* ]]; then
    _describe -o option options_
  elif (( \${#words_} )); then
    _describe command words_
  elif [[ -n $files ]]; then
    _files
  fi
}
if [[ $funcstack[1] == _smart_router || $funcstack[1] == _smart-router ]]; then
  _smart_router "$@"
else
  compdef _smart_router smart-router
fi
`;
}

/** Each line has a condition on the command before the cursor. */
function fish(tree: readonly CommandFacts[]): string {
  const lines = tree.flatMap(({ path, commands, options, arguments: given }) => {
    const when = `-n ${quotedForFish(`test (__smart_router_path) = ${quotedForFish(path)}`)}`;
    const files = given.some(({ isFile }) => isFile) ? [`complete -c smart-router ${when} -F`] : [];
    const add = (name: string, what: string) =>
      `complete -c smart-router ${when} -a ${quotedForFish(name)} -d ${quotedForFish(what)}`;
    return [
      ...commands.map(({ name, summary }) => add(name, summary)),
      ...given.flatMap(({ choices, description }) => choices.map((choice) => add(choice, description))),
      ...options.map(({ names, description, takesValue, choices }) => {
        const flags = names.map((name) =>
          name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
        );
        const value = takesValue
          ? choices.length > 0
            ? ` -x -a ${quotedForFish(choices.join(' '))}`
            : ' -x'
          : '';
        return `complete -c smart-router ${when} ${flags.join(' ')}${value} -d ${quotedForFish(description)}`;
      }),
      ...files,
    ];
  });
  const paths = tree.filter(({ path }) => path !== '').map(({ path }) => quotedForFish(path));
  return `# fish completion for smart-router.
#   smart-router completion fish | source
function __smart_router_path
    set -l path ''
    set -l skip ''
    for word in (commandline -opc)[2..-1]
        if test -n "$skip"
            set skip ''
            continue
        end
        switch $word
            case ${valueOptions(tree).join(' ')}
                set skip 1
                continue
            case '-*'
                continue
        end
        set -l longer (string trim -- "$path $word")
        if contains -- $longer ${paths.join(' ')}
            set path $longer
        end
    end
    echo "$path"
end
complete -c smart-router -f
${lines.join('\n')}
`;
}
