#!/bin/sh
# preStop of a voice agent: no new calls for this pod, and no end before its last call has ended.
#
# It asks the router to drain the pod and to answer when the last call is over, again and again: an answer may come
# early because that router stops, and a router may be unreachable for a moment. Only these end it:
#   exit 0   no call is left, or for DRAIN_UNKNOWN_SECONDS the router has not known the pod (it never got a call, or is
#            removed already) or has known another one by its name (this pod was replaced; needs POD_UID). A store that
#            lost its content knows no pod until the next sync, and none of its calls until its next report; a leader may
#            learn of a new pod late: so none of these is believed at once.
#   exit 1   DRAIN_TIMEOUT_SECONDS are over with calls still live, or the request itself is wrong;
#            also whenever it ends after a number of seconds that was none. Its default counts then: calls are not cut
#            for a misspelt setting, and the failure tells of it.
# Everything else is a line on stderr and another request.
# Kubernetes sends SIGTERM to the agent when this has ended, whatever the exit code; 1 shows as an event of the pod.
# POSIX sh and curl 7.55 are needed. The same for Node: drain-and-wait.mjs.
set -u
exec >&2
# A reader of these lines that has gone must not end the wait.
trap '' PIPE

if [ -z "${SMART_ROUTER_URL:-}" ] || [ -z "${POD_NAME:-}" ]; then
  echo 'SMART_ROUTER_URL and POD_NAME must be set'
  exit 1
fi
failed=0
# Digits, and no more than a day: what this, Node and the router all understand. A leading zero would mean octal.
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
# One request; proxies cut what is silent for longer than a minute or two.
seconds DRAIN_WAIT_SECONDS "${DRAIN_WAIT_SECONDS:-}" 50
step=$seconds
# Longer than RECONCILE_INTERVAL of the routers; then a pod is known again, and within its next report its calls are.
seconds DRAIN_UNKNOWN_SECONDS "${DRAIN_UNKNOWN_SECONDS:-}" 75
unknown=$seconds
report=15
[ "$unknown" -lt "$report" ] && report=$unknown
deadline=$(($(date +%s) + timeout))
unknown_since=''
last_unknown=0
calls='an unknown number of'
said=''

# Read again for every request: the key may be changed while a long call goes on.
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
    # A whole answer with a number in it, or not the router's word, and so never "no calls".
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
  # Waiting helps with a router that is down, full or has another key.
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
