#!/bin/sh
# Replaces the pods of one StatefulSet by pods of its new template, in waves: at most --wave of them are unavailable at a
# time. Each pod ends when its preStop hook has waited for its calls. See --help.
#
# It lists the pods, deletes as many as the wave allows, and repeats. It keeps no state: stopped at any moment, it leaves old
# pods that serve; started again, it continues. Every pod that is not ready counts as unavailable, for any cause: a new version
# that does not become ready stops the roll after one wave, and any other fault stops it until it is over.
# POSIX sh, awk and kubectl are needed; rights: get statefulsets, list and delete pods (and pods/exec for --router).
set -u

usage() {
  cat <<'TEXT'
roll-agents.sh --wave N [-n NAMESPACE] [--router WORKLOAD] [--interval SECONDS] STATEFULSET

Replaces pods of this StatefulSet (and of no other) that are not of its newest revision. Change the template first:
  kubectl -n voice set image statefulset/voice-agent voice-agent=registry.example.com/voice/agent:1.1.0
  roll-agents.sh --wave 50 -n voice --router deployment/smart-router voice-agent

  --wave N            at most N pods are terminating, missing or not ready at a time
  -n, --namespace NS  namespace of the StatefulSet and the router; default: that of your kubectl context
  --router WORKLOAD   asks this router which pods have no call, and replaces those first: that takes seconds
  --interval SECONDS  time between two lists; default 5
  --help              prints this text

The StatefulSet needs updateStrategy OnDelete. Exits with 0 when all its pods have the new revision and are ready, with
1 if it cannot start. Later failures of kubectl are printed and retried. Ctrl-C stops it: pods that are not deleted stay.
TEXT
}
refuse() {
  echo "$1 (see --help)" >&2
  exit 1
}
number() {
  case $2 in
    '' | 0* | *[!0-9]* | ??????*) refuse "$1 must be a whole number from 1 to 99999, got '$2'" ;;
  esac
}

wave='' router='' interval=5 set='' namespace=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --wave | --namespace | -n | --router | --interval)
      [ $# -gt 1 ] || refuse "$1 needs a value"
      case $1 in
        --wave) wave=$2 ;;
        --router) router=$2 ;;
        --interval) interval=$2 ;;
        *) namespace=$2 ;;
      esac
      shift
      ;;
    -*) refuse "unknown option $1" ;;
    *)
      [ -z "$set" ] || refuse "only one StatefulSet is allowed, got $set and $1"
      set=${1#statefulset/}
      ;;
  esac
  shift
done
[ -n "$set" ] || refuse 'the name of a StatefulSet is missing'
number --wave "$wave"
number --interval "$interval"

kube() { kubectl ${namespace:+--namespace "$namespace"} "$@"; }

# One line: uid, generation, the generation the controller has seen, replicas, newest revision, strategy, selector.
read_set() {
  kube get statefulset "$set" -o go-template='{{.metadata.uid}} {{.metadata.generation}} {{or .status.observedGeneration 0}} {{.spec.replicas}} {{or .status.updateRevision "-"}} {{.spec.updateStrategy.type}} {{range $key, $value := .spec.selector.matchLabels}}{{$key}}={{$value}},{{end}}'
}
# One line per pod that this set owns: name, revision, and `ready`, `unready` or `terminating`. Labels are not enough: the
# sets of other tiers may have the same ones.
read_pods() {
  kube get pods --selector "${selector%,}" -o go-template='{{range $pod := .items}}{{range .metadata.ownerReferences}}{{if eq .uid "'"$uid"'"}}{{$pod.metadata.name}} {{index $pod.metadata.labels "controller-revision-hash"}} {{if $pod.metadata.deletionTimestamp}}terminating{{else}}{{$state := "unready"}}{{range $pod.status.conditions}}{{if and (eq .type "Ready") (eq .status "True")}}{{$state = "ready"}}{{end}}{{end}}{{$state}}{{end}}{{"\n"}}{{end}}{{end}}{{end}}'
}
# Names of pods without a call. If this fails, the roll takes longer; no call is cut.
read_idle() {
  [ -n "$router" ] || return 0
  kube exec "$router" -- smart-router pods --state free --json |
    sed -n 's/.*"pod_name": *"\([^"]*\)".*/\1/p' | tr '\n' ' '
}

said=''
say() {
  [ "$1" = "$said" ] || echo "$1"
  said=$1
}

seen=$(read_set) || refuse "cannot read StatefulSet $set"
while :; do
  read -r uid generation observed replicas revision strategy selector <<LINE
$seen
LINE
  if [ -z "$seen" ]; then
    say "kubectl failed; retrying"
  elif [ "$observed" -lt "$generation" ] || [ "$revision" = - ]; then
    # Until then the newest revision is still the previous one.
    say "waiting for the controller to see the change of $set"
  elif pods=$(read_pods); then
    if [ "$strategy" != OnDelete ] && [ -z "${warned:-}" ]; then
      warned=yes
      echo "updateStrategy of $set is $strategy: its controller replaces pods too, in addition to these waves" >&2
    fi
    # Room for pods that serve: the wave, minus all pods that do not serve. Deleting an old pod that does not serve costs no
    # capacity, so for those only the pods that the roll itself has deleted count.
    plan=$(printf '%s\n' "$pods" | awk -v new="$revision" -v wanted="$replicas" -v wave="$wave" '
      NF < 3 { next }
      $3 == "ready" { serving++; if ($2 == new) fresh++; else ready[++old] = $1 }
      $3 == "unready" && $2 != new { broken[++dead] = $1 }
      END {
        unavailable = wanted > serving ? wanted - serving : 0
        rolling = unavailable > dead ? unavailable - dead : 0
        print fresh + 0, unavailable, old + dead, wave - unavailable
        for (i = 1; i <= dead && i <= wave - rolling; i++) print broken[i], "now"
        for (i = 1; i <= old; i++) print ready[i]
      }')
    read -r fresh unavailable left room <<LINE
$plan
LINE
    say "$set: $fresh of $replicas pods new and ready, $unavailable unavailable, $left to replace"
    if [ "$left" = 0 ] && [ "$unavailable" = 0 ]; then
      echo "all pods of $set have revision $revision"
      exit 0
    fi
    idle=''
    if [ "$room" -gt 0 ] && [ "$left" -gt 0 ]; then
      idle=$(read_idle)
    fi
    chosen=$(printf '%s\n' "$plan" | awk -v idle="$idle" -v room="$room" '
      BEGIN { count = split(idle, names); for (i = 1; i <= count; i++) free[names[i]] = 1 }
      NR == 1 { next }
      $2 == "now" { print $1; next }
      $1 in free { if (room > 0) { print $1; room-- } next }
      { busy[++others] = $1 }
      END { for (i = 1; i <= others && room > 0; i++) { print busy[i]; room-- } }')
    if [ -n "$chosen" ]; then
      # shellcheck disable=SC2086 # Names of pods are words.
      kube delete pod --wait=false --ignore-not-found $chosen
    fi
  else
    say "kubectl failed; retrying"
  fi
  sleep "$interval"
  seen=$(read_set) || seen=''
done
