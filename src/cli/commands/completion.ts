/** `smart-router completion`: a script that lets a shell complete the commands. */
import { Argument, type Command } from 'commander';
import { command } from '../cli.js';
import { type CommandFacts, commandTree } from '../command-tree.js';

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

export const completion = command({
  name: 'completion',
  summary: 'print a script that completes commands and options in bash, zsh or fish',
  about:
    'Generated from the commands of this version, so load it in each new shell. It completes commands, options and fixed values, without calling a router.',
  examples: [
    ['completion bash', 'show it'],
    ['completion bash >> ~/.bash_completion', 'for every new bash'],
    ['completion fish > ~/.config/fish/completions/smart-router.fish', 'for every new fish'],
  ],
  args: [new Argument('<shell>', 'name of the shell').choices(shells)],
  async run({ args: [shell], command: { parent } }) {
    const script = completionScript(shell as Shell, commandTree(parent as Command));
    return { document: { shell, script }, text: script };
  },
});

export function completionScript(shell: Shell, tree: readonly CommandFacts[]): string {
  return { bash, zsh, fish }[shell](tree);
}

/** Single quotes, for bash and zsh. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
/** Single quotes, for fish, which unescapes \\ and \' inside them. */
const quotedForFish = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

const paths = (tree: readonly CommandFacts[]) => tree.flatMap(({ path }) => (path === '' ? [] : [path]));
const takesFile = ({ arguments: given }: CommandFacts) => given.some(({ isFile }) => isFile);

/** Options that take a value: the next word is not a command. */
function valueOptions(tree: readonly CommandFacts[]): string[] {
  const options = tree.flatMap((one) => one.options.filter(({ takesValue }) => takesValue));
  return [...new Set(options.flatMap(({ names }) => names))].sort();
}

/** What can stand at the cursor if it is not an option. */
const plainWords = ({ commands, arguments: given }: CommandFacts) => [
  ...commands,
  ...given.flatMap(({ choices, description }) => choices.map((name) => ({ name, summary: description }))),
];

/** For bash and zsh: sets `path_`, the command before the cursor, and `skip` if the next word is an option's value. */
const findPath = (tree: readonly CommandFacts[], words: string, first: number, cursor: string) =>
  `for ((i = ${first}; i < ${cursor}; i++)); do
    word=\${${words}[i]}
    if [[ -n $skip ]]; then skip=''; continue; fi
    case $word in
    ${valueOptions(tree).join('|')}) skip=1; continue ;;
    -*) continue ;;
    esac
    case "\${path_:+$path_ }$word" in
    ${paths(tree).map(quoted).join('|')}) path_="\${path_:+$path_ }$word" ;;
    esac
  done`;

/** For bash and zsh: a case for each option with fixed values. */
const choiceCases = (tree: readonly CommandFacts[], offer: (choices: readonly string[]) => string) =>
  tree
    .flatMap(({ path, options }) =>
      options
        .filter(({ choices }) => choices.length > 0)
        .flatMap(({ names, choices }) =>
          names.map((name) => `    ${quoted(`${path} ${name}`)}) ${offer(choices)} ;;`),
        ),
    )
    .join('\n');

function bash(tree: readonly CommandFacts[]): string {
  const cases = tree.map((one) => {
    const words = plainWords(one).map(({ name }) => name);
    const options = one.options.flatMap(({ names }) => names);
    const files = takesFile(one) ? ' files=1' : '';
    return `    ${quoted(one.path)}) words=${quoted(words.join(' '))} options=${quoted(options.join(' '))}${files} ;;`;
  });
  return `# bash completion for smart-router.
#   source <(smart-router completion bash)
_smart_router() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]}
  local path_='' words='' options='' files='' word i skip=''
  ${findPath(tree, 'COMP_WORDS', 1, 'COMP_CWORD')}
  COMPREPLY=()
  if [[ -n $skip ]]; then
    case "$path_ $previous" in
${choiceCases(tree, (choices) => `words=${quoted(choices.join(' '))}`)}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current")) || :
    return 0
  fi
  case $path_ in
${cases.join('\n')}
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
`;
}

function zsh(tree: readonly CommandFacts[]): string {
  /** An entry of _describe: `name:description`. */
  const entry = (name: string, what: string) => quoted(`${name.replaceAll(':', '\\:')}:${what}`);
  const cases = tree.map((one) => {
    const words = plainWords(one).map(({ name, summary }) => entry(name, summary));
    const options = one.options.flatMap(({ names, description }) =>
      names.map((name) => entry(name, description)),
    );
    const files = takesFile(one) ? '; files=1' : '';
    return `    ${quoted(one.path)}) words_=(${words.join(' ')}); options_=(${options.join(' ')})${files} ;;`;
  });
  return `#compdef smart-router
# zsh completion for smart-router. Put it in a folder of $fpath as _smart-router, or:
#   source <(smart-router completion zsh)
_smart_router() {
  local path_='' word skip='' files='' i
  local -a words_ options_
  ${findPath(tree, 'words', 2, 'CURRENT')}
  if [[ -n $skip ]]; then
    case "$path_ \${words[CURRENT - 1]}" in
${choiceCases(tree, (choices) => `compadd -- ${choices.map(quoted).join(' ')}`)}
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
  const lines = tree.flatMap((one) => {
    const isHere = quotedForFish(`test (__smart_router_path) = ${quotedForFish(one.path)}`);
    const add = (what: string, description?: string) =>
      `complete -c smart-router -n ${isHere} ${what}${description === undefined ? '' : ` -d ${quotedForFish(description)}`}`;
    return [
      ...plainWords(one).map(({ name, summary }) => add(`-a ${quotedForFish(name)}`, summary)),
      ...one.options.map(({ names, description, takesValue, choices }) => {
        const flags = names.map((name) => name.replace(/^--/, '-l ').replace(/^-(?=\w$)/, '-s ')).join(' ');
        const values = choices.length > 0 ? ` -a ${quotedForFish(choices.join(' '))}` : '';
        return add(`${flags}${takesValue ? ' -x' : ''}${values}`, description);
      }),
      ...(takesFile(one) ? [add('-F')] : []),
    ];
  });
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
        if contains -- $longer ${paths(tree).map(quotedForFish).join(' ')}
            set path $longer
        end
    end
    echo "$path"
end
complete -c smart-router -f
${lines.join('\n')}
`;
}
