#!/bin/sh
# preStop hook of a voice agent: drains the pod and waits until its last call has ended.
#
# It repeats the request `drain` with `wait`: a router that stops answers early, and a router may be unreachable for a
# moment. It ends in these cases only:
#   exit 0   No call is left. Or, for DRAIN_UNKNOWN_SECONDS, the router did not know the pod (it never got a call, or was
#            removed) or knew another pod by its name (this one was replaced; needs POD_UID). These answers count only
#            after that time: a store that lost its data knows no pod until the next reconcile, and none of its calls
#            until the next report; a leader may see a new pod late.
#   exit 1   DRAIN_TIMEOUT_SECONDS have passed and calls are live, or the router rejected the request as invalid.
#            Also after an invalid number of seconds: the hook waits with the default, so that no call is cut, then fails.
# Every other answer is a line on stderr and a retry.
# Kubernetes then sends SIGTERM to the agent, for every exit code. Exit code 1 shows as an event of the pod.
# POSIX sh and curl 7.55 are needed. The same for Node: drain-and-wait.mjs.
set -u
exec >&2
# A closed stderr must not end the wait.
trap '' PIPE

if [ -z "${SMART_ROUTER_URL:-}" ] || [ -z "${POD_NAME:-}" ]; then
  echo 'SMART_ROUTER_URL and POD_NAME must be set'
  exit 1
fi
failed=0
# Digits, at most a day: the format that sh, Node and the router accept. A leading zero would mean octal.
seconds() {
  seconds=${2:-$3}
  case $seconds in
    0?* | *[!0-9]* | ??????*) ;;
    *) [ "$seconds" -le 86400 ] && return ;;
  esac
  echo "$1 must be a whole number of seconds from 0 to 86400: $3 is used instead"
  seconds=$3
  failed=1
}
# terminationGracePeriodSeconds must be longer than this.
seconds DRAIN_TIMEOUT_SECONDS "${DRAIN_TIMEOUT_SECONDS:-}" 3600
timeout=$seconds
# The longest request: proxies close connections that are silent for a minute or two.
seconds DRAIN_WAIT_SECONDS "${DRAIN_WAIT_SECONDS:-}" 50
step=$seconds
# Longer than RECONCILE_INTERVAL of the routers: by then they know the pod again, and its calls after its next report.
seconds DRAIN_UNKNOWN_SECONDS "${DRAIN_UNKNOWN_SECONDS:-}" 75
unknown=$seconds
report=15
[ "$unknown" -lt "$report" ] && report=$unknown
deadline=$(($(date +%s) + timeout))
unknown_since=''
last_unknown=0
calls='an unknown number of'
said=''

# Read again for every request: the key may change during a long call.
key() {
  if [ -n "${SMART_ROUTER_API_KEY_FILE:-}" ]; then cat "$SMART_ROUTER_API_KEY_FILE"; else printf %s "${SMART_ROUTER_API_KEY:-}"; fi
}

while :; do
  left=$((deadline - $(date +%s)))
  [ "$left" -lt 0 ] && left=0
  [ "$left" -gt "$step" ] && left=$step
  # The key goes through a pipe: an argument could be read in the list of processes.
  live=''
  if answer=$(printf 'authorization: Bearer %s' "$(key)" | curl --silent --show-error \
    --max-time $((left + 5)) --user-agent smart-router/0.1.0 --write-out ' %{http_code}' \
    --header @- --header 'content-type: application/json' \
    --data "{\"pod_name\":\"$POD_NAME\",${POD_UID:+\"uid\":\"$POD_UID\",}\"wait\":\"${left}s\"}" \
    "${SMART_ROUTER_URL%/}/api/v1/drain" 2>&1); then
    # Only a complete JSON answer with a number is the router's; anything else never counts as "no calls".
    case $answer in
      '{'*'} 200') live=$(printf %s "$answer" | sed -n 's/.*"active_calls": *\([0-9][0-9]*\)[,}].*/\1/p') ;;
    esac
  else
    answer="did not answer: ${answer# 000}"
  fi
  now=$(date +%s)
  [ -n "$live" ] && unknown_since=''
  if [ "$live" = 0 ] && [ $((now - last_unknown)) -ge "$report" ]; then
    echo "no calls left on $POD_NAME"
    exit $failed
  fi
  case $answer in
    'did not answer: '*) ;;
    *'"code":"pod_not_found"'* | *'"code":"pod_replaced"'*)
      unknown_since=${unknown_since:-$now}
      last_unknown=$now
      if [ $((now - unknown_since)) -ge "$unknown" ]; then
        case $answer in
          *'"code":"pod_replaced"'*) echo "the router knows another pod as $POD_NAME: nothing to wait for" ;;
          *) echo "the router does not know $POD_NAME: nothing to wait for" ;;
        esac
        exit $failed
      fi
      ;;
    *'"code":"invalid_request"'*)
      echo "the router answered: $answer"
      exit 1
      ;;
  esac
  # Retry: the router may be down, overloaded, or have another key for a while.
  if [ -n "$live" ]; then
    calls=$live
    news="$live live calls on $POD_NAME"
  else
    case $answer in
      'did not answer: '*) news="the router $answer" ;;
      *) news="the router answered: $answer" ;;
    esac
  fi
  [ "$news" = "$said" ] || echo "$news"
  said=$news
  if [ "$(date +%s)" -ge "$deadline" ]; then
    echo "time is up: $calls live calls on $POD_NAME"
    exit 1
  fi
  sleep 1
done
