// preStop of a voice agent: no new calls for this pod, and no end before its last call has ended.
//
// It asks the router to drain the pod and to answer when the last call is over, again and again: an answer may come
// early because that router stops, and a router may be gone for a moment. Only these end it:
//   exit 0   no call is left, or the router has not known the pod for DRAIN_UNKNOWN_SECONDS (it never got a call, or is
//            removed already). A store that lost its content knows no pod until the next sync, and none of its calls
//            until its next report: so neither is believed at once.
//   exit 1   DRAIN_TIMEOUT_SECONDS are over with calls still live, or the request itself is wrong;
//            also whenever it ends after a number of seconds that was none. Its default counts then: calls are not cut
//            for a misspelt setting, and the failure tells of it.
// Kubernetes sends SIGTERM to the agent when this has ended, whatever the exit code; 1 shows as an event of the pod.
// Nothing but Node 18 is needed. The same in sh and curl: drain-and-wait.sh.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const { SMART_ROUTER_URL, SMART_ROUTER_API_KEY, SMART_ROUTER_API_KEY_FILE, POD_NAME } = process.env;
let failed = 0;
// terminationGracePeriodSeconds must be longer than this.
const timeoutMs = 1000 * seconds('DRAIN_TIMEOUT_SECONDS', 3600);
// One request; proxies cut what is silent for longer than a minute or two.
const waitMs = 1000 * seconds('DRAIN_WAIT_SECONDS', 50);
// Longer than RECONCILE_INTERVAL of the routers; then a pod is known again, and within its next report its calls are.
const unknownMs = 1000 * seconds('DRAIN_UNKNOWN_SECONDS', 75);
const reportMs = Math.min(unknownMs, 15_000);
const pauseMs = 1000;

if (!SMART_ROUTER_URL || !POD_NAME) end(1, 'SMART_ROUTER_URL and POD_NAME must be set');

const deadline = performance.now() + timeoutMs;
let said = '';
let unknownSince;
let lastUnknown = Number.NEGATIVE_INFINITY;
let activeCalls = 'an unknown number of';

for (;;) {
  const leftMs = Math.max(0, deadline - performance.now());
  const answer = await drain(Math.ceil(Math.min(waitMs, leftMs)));
  const now = performance.now();
  if (answer.code === 'pod_not_found') {
    unknownSince ??= now;
    lastUnknown = now;
    if (now - unknownSince >= unknownMs) end(0, `the router does not know ${POD_NAME}: nothing to wait for`);
  } else if (answer.activeCalls !== undefined) unknownSince = undefined;
  if (answer.activeCalls === 0 && now - lastUnknown >= reportMs) end(0, `no calls left on ${POD_NAME}`);
  // Waiting mends a router that is gone, full or told another key, but not a wrong request.
  if (answer.code === 'invalid_request') end(1, answer.problem);
  activeCalls = answer.activeCalls ?? activeCalls;
  const news = answer.problem ?? `${activeCalls} live calls on ${POD_NAME}`;
  if (news !== said) console.log(news);
  said = news;
  if (performance.now() >= deadline) end(1, `time is up: ${activeCalls} live calls on ${POD_NAME}`);
  await sleep(Math.min(pauseMs, Math.max(1, deadline - performance.now())));
}

async function drain(ms) {
  try {
    const response = await fetch(`${SMART_ROUTER_URL.replace(/\/$/, '')}/api/v1/drain`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key()}`, 'content-type': 'application/json' },
      body: JSON.stringify({ pod_name: POD_NAME, wait: `${ms}ms` }),
      signal: AbortSignal.timeout(ms + 10_000),
    });
    const body = await response.json();
    if (response.ok && Number.isInteger(body.active_calls)) return { activeCalls: body.active_calls };
    return { code: body.code, problem: `the router answered ${response.status}: ${body.error}` };
  } catch (error) {
    return { problem: `the router did not answer: ${error.cause?.message || error.message}` };
  }
}

/** Digits, and no more than a day: what this, the sh and the router all understand. */
function seconds(name, fallback) {
  const given = process.env[name] || String(fallback);
  if (/^(0|[1-9]\d{0,4})$/.test(given) && Number(given) <= 86_400) return Number(given);
  console.log(`${name} must be a whole number of seconds from 0 to 86400: ${fallback} is used instead`);
  failed = 1;
  return fallback;
}

/** Read again for every request: the key may be changed while a long call goes on. */
function key() {
  return SMART_ROUTER_API_KEY_FILE
    ? readFileSync(SMART_ROUTER_API_KEY_FILE, 'utf8').trim()
    : SMART_ROUTER_API_KEY;
}

function end(code, message) {
  console.log(message);
  process.exit(code || failed);
}
