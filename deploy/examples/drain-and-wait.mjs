// preStop hook of a voice agent: drains the pod and waits until its last call has ended.
//
// It repeats the request `drain` with `wait`: a router that stops answers early, and a router may be unreachable for a
// moment. It ends in these cases only:
//   exit 0   No call is left. Or, for DRAIN_UNKNOWN_SECONDS, the router did not know the pod (it never got a call, or was
//            removed) or knew another pod by its name (this one was replaced; needs POD_UID). These answers count only
//            after that time: a store that lost its data knows no pod until the next reconcile, and none of its calls
//            until the next report; a leader may see a new pod late.
//   exit 1   DRAIN_TIMEOUT_SECONDS have passed and calls are live, or the router rejected the request as invalid.
//            Also after an invalid number of seconds: the hook waits with the default, so that no call is cut, then fails.
// Every other answer is a line on stderr and a retry.
// Kubernetes then sends SIGTERM to the agent, for every exit code. Exit code 1 shows as an event of the pod.
// Needs Node 18 only. The same with sh and curl: drain-and-wait.sh.
import { readFileSync } from 'node:fs';
import * as http from 'node:http';
import * as https from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';

const { SMART_ROUTER_URL, SMART_ROUTER_API_KEY, SMART_ROUTER_API_KEY_FILE, POD_NAME, POD_UID } = process.env;
// A closed stderr must not end the wait.
process.stderr.on('error', () => {});
let failed = 0;
// terminationGracePeriodSeconds must be longer than this.
const timeoutMs = 1000 * seconds('DRAIN_TIMEOUT_SECONDS', 3600);
// The longest request: proxies close connections that are silent for a minute or two.
const waitMs = 1000 * seconds('DRAIN_WAIT_SECONDS', 50);
// Longer than RECONCILE_INTERVAL of the routers: by then they know the pod again, and its calls after its next report.
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
  if (answer.code === 'pod_not_found' || answer.code === 'pod_replaced') {
    unknownSince ??= now;
    lastUnknown = now;
    const why = answer.code === 'pod_replaced' ? 'knows another pod as' : 'does not know';
    if (now - unknownSince >= unknownMs) end(0, `the router ${why} ${POD_NAME}: nothing to wait for`);
  } else if (answer.activeCalls !== undefined) unknownSince = undefined;
  if (answer.activeCalls === 0 && now - lastUnknown >= reportMs) end(0, `no calls left on ${POD_NAME}`);
  // Other problems are retried: the router may be down, overloaded, or have another key for a while.
  if (answer.code === 'invalid_request') end(1, answer.problem);
  activeCalls = answer.activeCalls ?? activeCalls;
  const news = answer.problem ?? `${activeCalls} live calls on ${POD_NAME}`;
  if (news !== said) console.error(news);
  said = news;
  if (performance.now() >= deadline) end(1, `time is up: ${activeCalls} live calls on ${POD_NAME}`);
  await sleep(Math.min(pauseMs, Math.max(1, deadline - performance.now())));
}

async function drain(ms) {
  try {
    const body = JSON.stringify({ pod_name: POD_NAME, uid: POD_UID || undefined, wait: `${ms}ms` });
    const { status, text } = await post(body, ms + 5000);
    const answer = JSON.parse(text);
    if (status === 200 && Number.isInteger(answer.active_calls)) return { activeCalls: answer.active_calls };
    return { code: answer.code, problem: `the router answered ${status}: ${answer.error}` };
  } catch (error) {
    return { problem: `the router did not answer: ${error.message || error.code || error}` };
  }
}

/**
 * Always settles. In Node 20 `fetch` does not, if the connection is closed before the request is sent. Its
 * AbortSignal.timeout does not keep the process alive, so Node would exit with code 13 and no message.
 */
function post(body, limitMs) {
  const url = new URL(`${SMART_ROUTER_URL.replace(/\/$/, '')}/api/v1/drain`);
  const headers = {
    authorization: `Bearer ${key()}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    'user-agent': 'smart-router/0.1.0',
  };
  let late;
  return new Promise((resolve, reject) => {
    const { request } = url.protocol === 'https:' ? https : http;
    const sent = request(url, { method: 'POST', headers, agent: false });
    late = setTimeout(() => {
      reject(new Error(`nothing within ${Math.round(limitMs / 1000)} s`));
      sent.destroy();
    }, limitMs);
    sent.on('error', reject);
    sent.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk) => {
        text += chunk;
      });
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode, text }));
    });
    sent.end(body);
  }).finally(() => clearTimeout(late));
}

/** Digits, at most a day: the format that sh, Node and the router accept. */
function seconds(name, fallback) {
  const given = process.env[name] || String(fallback);
  if (/^(0|[1-9]\d{0,4})$/.test(given) && Number(given) <= 86_400) return Number(given);
  console.error(`${name} must be a whole number of seconds from 0 to 86400: ${fallback} is used instead`);
  failed = 1;
  return fallback;
}

/** Read again for every request: the key may change during a long call. */
function key() {
  return SMART_ROUTER_API_KEY_FILE
    ? readFileSync(SMART_ROUTER_API_KEY_FILE, 'utf8').trim()
    : SMART_ROUTER_API_KEY;
}

function end(code, message) {
  console.error(message);
  process.exit(code || failed);
}
