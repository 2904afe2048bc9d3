#!/bin/sh
# Replaces the agents of one StatefulSet by those of its new template, in waves: no more than --wave of its pods are away
# at a time, and each goes only when its preStop hook has let its calls end. See --help.
#
# It looks, deletes what there is room for, and looks again. What it saw is all it knows: stopped at any moment it leaves
# pods that are old and serve, and started again it goes on. Away is every pod that is not ready, whoever the cause: a new
# version that does not get ready stops the roll after one wave, and so does a fault somewhere else until it is over.
# POSIX sh, awk and kubectl are needed; rights: get statefulsets, list and delete pods (and pods/exec for --router).
set -u

usage() {
  cat <<'TEXT'
roll-agents.sh --wave N [-n NAMESPACE] [--router WORKLOAD] [--interval SECONDS] STATEFULSET

Replaces pods of this StatefulSet (and of no other) that are not of its newest revision. Change the template first:
  kubectl -n voice set image statefulset/voice-agent voice-agent=registry.example.com/voice/agent:1.1.0
  roll-agents.sh --wave 50 -n voice --router deployment/smart-router voice-agent

  --wave N            at most so many pods are terminating, missing or not ready at a time: what you have to spare
  -n, --namespace NS  of the StatefulSet and the router; default: the one of your kubectl context
  --router WORKLOAD   asks this router which pods have no call, and takes those first: they are back in seconds
  --interval SECONDS  between two looks; default 5
  --help              this text

The StatefulSet needs updateStrategy OnDelete. Ends with 0 when all its pods are of the new revision and ready. Ctrl-C
stops it: pods that are not deleted stay. Ends with 1 if it cannot start; later failures of kubectl are told and retried.
TEXT
}
refuse() {
  echo "$1 (--help explains)" >&2
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
      [ -z "$set" ] || refuse "one StatefulSet at a time: $set, $1"
      set=${1#statefulset/}
      ;;
  esac
  shift
done
[ -n "$set" ] || refuse 'which StatefulSet?'
number --wave "$wave"
number --interval "$interval"

kube() { kubectl ${namespace:+--namespace "$namespace"} "$@"; }

# One line: uid, generation, the generation the controller has seen, replicas, newest revision, strategy, selector.
look_at_set() {
  kube get statefulset "$set" -o go-template='{{.metadata.uid}} {{.metadata.generation}} {{or .status.observedGeneration 0}} {{.spec.replicas}} {{or .status.updateRevision "-"}} {{.spec.updateStrategy.type}} {{range $key, $value := .spec.selector.matchLabels}}{{$key}}={{$value}},{{end}}'
}
# One line per pod that this set owns: name, revision, and `ready`, `away` or `terminating`. The labels alone would not do:
# the sets of other tiers may have the same ones.
look_at_pods() {
  kube get pods --selector "${selector%,}" -o go-template='{{range $pod := .items}}{{range .metadata.ownerReferences}}{{if eq .uid "'"$uid"'"}}{{$pod.metadata.name}} {{index $pod.metadata.labels "controller-revision-hash"}} {{if $pod.metadata.deletionTimestamp}}terminating{{else}}{{$state := "away"}}{{range $pod.status.conditions}}{{if and (eq .type "Ready") (eq .status "True")}}{{$state = "ready"}}{{end}}{{end}}{{$state}}{{end}}{{"\n"}}{{end}}{{end}}{{end}}'
}
# Names of pods without a call. Not to know them costs time, no calls.
look_for_idle() {
  [ -n "$router" ] || return 0
  kube exec "$router" -- smart-router pods --state free --json |
    sed -n 's/.*"pod_name": *"\([^"]*\)".*/\1/p' | tr '\n' ' '
}

said=''
say() {
  [ "$1" = "$said" ] || echo "$1"
  said=$1
}

seen=$(look_at_set) || refuse "cannot read StatefulSet $set"
while :; do
  read -r uid generation observed replicas revision strategy selector <<LINE
$seen
LINE
  if [ -z "$seen" ]; then
    say "kubectl failed: trying again"
  elif [ "$observed" -lt "$generation" ] || [ "$revision" = - ]; then
    # Until then the newest revision is the one of before.
    say "waiting for the controller to see the change of $set"
  elif pods=$(look_at_pods); then
    if [ "$strategy" != OnDelete ] && [ -z "${warned:-}" ]; then
      warned=yes
      echo "updateStrategy of $set is $strategy: its controller replaces pods too, beside these waves" >&2
    fi
    # Room for pods that serve: what is left of the wave when all that do not serve are counted. Old pods that do not serve
    # anyway cost nobody anything, so for them only what the roll itself has taken away counts.
    plan=$(printf '%s\n' "$pods" | awk -v new="$revision" -v wanted="$replicas" -v wave="$wave" '
      NF < 3 { next }
      $3 == "ready" { serving++; if ($2 == new) fresh++; else ready[++old] = $1 }
      $3 == "away" && $2 != new { broken[++dead] = $1 }
      END {
        away = wanted > serving ? wanted - serving : 0
        rolling = away > dead ? away - dead : 0
        print fresh + 0, away, old + dead, wave - away
        for (i = 1; i <= dead && i <= wave - rolling; i++) print broken[i], "now"
        for (i = 1; i <= old; i++) print ready[i]
      }')
    read -r fresh away left room <<LINE
$plan
LINE
    say "$set: $fresh of $replicas are new and ready, $away away, $left still to go"
    if [ "$left" = 0 ] && [ "$away" = 0 ]; then
      echo "all pods of $set are of revision $revision"
      exit 0
    fi
    idle=''
    if [ "$room" -gt 0 ] && [ "$left" -gt 0 ]; then
      idle=$(look_for_idle)
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
    say "kubectl failed: trying again"
  fi
  sleep "$interval"
  seen=$(look_at_set) || seen=''
done
