# What zsh offers for each of some lines: zsh-offers.zsh SETUP FILE LINE...
# A real interactive zsh in a terminal of its own reads SETUP and is asked by Tab. Every match that its completion system
# accepts is also written to FILE, and after each line what the line has become.
zmodload zsh/zpty
zpty shell zsh -f -i
send() { zpty -w shell "$1" }
await() { local line; while zpty -r shell line; do [[ $line == *$1* ]] && return; done }

send "PS1=; RPS1=; LISTMAX=0; unsetopt beep; source ${(q)1}; found=${(q)2}; : > \$found"
send 'compadd() {
  local -a hits
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  builtin compadd -A hits "$@"
  (( $#hits )) && print -rl -- $hits >> $found
  builtin compadd "$@"
}'
send 'told() { print -r -- "line: $BUFFER" >> $found; print "to""ld"; BUFFER= }; zle -N told'
# Keys that begin no longer sequence: zsh would wait for its rest.
send 'bindkey "^I" complete-word; bindkey "^T" told; print "re""ady"'
await ready
for line in "${@[3,-1]}"; do
  zpty -w -n shell "$line"$'\t\C-T'
  await told
done
zpty -d shell
