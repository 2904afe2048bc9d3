/** Checks of the router at --url: alive, ready, accepts our keys. Without a router: whether one could start. */
import { createServer } from 'node:net';
import type { Clock } from '../../clock.js';
import { type Config, loadConfig } from '../../config/config.js';
import { ConfigError } from '../../errors.js';
import { version } from '../../version.js';
import { isKey } from '../access.js';
import { RouterApi } from '../api.js';
import { type Check, fail, failIf, ok, skip, warn } from '../commands/doctor.js';
import { replicasDiffer } from '../commands/status.js';
import { Failure, toFailure } from '../failure.js';
import type { Status } from '../replies.js';

interface RouterTarget {
  env: NodeJS.ProcessEnv;
  clock: Clock;
  url: string;
  timeoutMs: number;
  config: Config | undefined;
}

/** The address of `serve` in this environment, even if other variables are invalid. */
export function ownAddress({ HTTP_HOST, HTTP_PORT }: NodeJS.ProcessEnv, clock: Clock): string {
  try {
    const env = { HTTP_HOST, HTTP_PORT, AUTH_DISABLED: 'true' };
    const { httpHost, httpPort } = loadConfig(env, 'serve', clock);
    const host = ['0.0.0.0', '::'].includes(httpHost) ? '127.0.0.1' : httpHost;
    // Port 0 is a random port, which is unknown here.
    return `http://${host.includes(':') ? `[${host}]` : host}:${httpPort || 8080}`;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return 'http://127.0.0.1:8080';
  }
}

/** Sends a request with the key in the variable `from`, and returns the reply or the failure. */
async function request<T>(
  { url, timeoutMs, clock, env }: RouterTarget,
  path: string,
  has: string,
  from?: string,
): Promise<T | Failure> {
  const value = from && env[from];
  const key = from && value ? { value, from } : undefined;
  const api = new RouterApi({ baseUrl: url, key, timeoutMs, clock });
  try {
    return (await api.send<T>(path, has)).body;
  } catch (error) {
    return toFailure(error);
  } finally {
    api.close();
  }
}

export async function checkRouter(target: RouterTarget): Promise<Check[]> {
  const health = await request(target, '/health', 'status');
  if (health instanceof Failure) {
    if (health.code === 'not_a_router')
      return [fail('router', health.message, 'Another program may use its port.')];
    return [
      warn('router', `no router answers at ${target.url}`, 'Start `smart-router serve`, or set --url.'),
      ...(await checkPorts(target.config)),
    ];
  }
  const ready = await request(target, '/ready', 'status');
  return [
    ok('router', `answers at ${target.url}`),
    ready instanceof Failure
      ? fail('router ready', ready.message, 'Check its log and its REDIS_URL.')
      : ok('router ready', 'its store answers'),
    ...(await checkKeys(target)),
  ];
}

const adminKey = 'SMART_ROUTER_ADMIN_KEY';
const apiKey = 'SMART_ROUTER_API_KEY';

/** Tries each key on a read that it must allow. */
async function checkKeys(target: RouterTarget): Promise<Check[]> {
  const isUsable = (name: string) => isKey(target.env[name]);
  const checks: Check[] = [];
  if (isUsable(adminKey) || !isUsable(apiKey)) checks.push(await checkAdminKey(target, isUsable(adminKey)));
  if (isUsable(apiKey)) checks.push(await checkApiKey(target));
  return checks;
}

async function checkAdminKey(target: RouterTarget, isSet: boolean): Promise<Check> {
  const name = 'router access';
  const status = await request<Status>(target, '/status', 'pools', isSet ? adminKey : undefined);
  if (status instanceof Failure) {
    return status.code === 'unauthorized' && !isSet
      ? skip(name, `the router requires a key and ${adminKey} is not set here`)
      : keyFailure(name, adminKey, status);
  }
  if (status.version !== version) {
    const text = `access granted; the router has version ${status.version}, this command ${version}`;
    return warn(name, text, 'Use the command of the same version.');
  }
  if (status.replicas_differ.length > 0) {
    const hint = 'The next leader may remove pods; calls end at other times on each replica.';
    return warn(name, replicasDiffer(status.replicas_differ), hint);
  }
  return ok(name, isSet ? `${adminKey} is accepted` : 'no key is required');
}

async function checkApiKey(target: RouterTarget): Promise<Check> {
  const name = 'router api key';
  const reply = await request(target, '/pod/smart-router-doctor', 'pod_name', apiKey);
  return reply instanceof Failure && reply.code !== 'pod_not_found'
    ? keyFailure(name, apiKey, reply)
    : ok(name, `${apiKey} is accepted`);
}

/** Only a rejection is about the key: a router without its store returns another error. */
function keyFailure(name: string, variable: string, { code, message }: Failure): Check {
  if (code === 'unauthorized' || code === 'forbidden')
    return fail(name, message, `Compare ${variable} with the router's.`);
  if (['store_unavailable', 'timeout'].includes(code)) return skip(name, `not checked: ${message}`);
  return fail(name, message, "Check the router's log.");
}

async function checkPorts(config: Config | undefined): Promise<Check[]> {
  if (!config) return [skip('ports', 'not checked: the configuration is invalid')];
  const ports = { HTTP_PORT: config.httpPort, METRICS_PORT: config.metricsPort };
  const checks: Check[] = [];
  for (const [name, port] of Object.entries(ports)) {
    if (port === undefined || port === 0) continue;
    const problem = await listenProblem(config.httpHost, port);
    const place = `${name} ${port} on ${config.httpHost}`;
    const text = problem && `${place} cannot be used: ${problem}`;
    checks.push(failIf(text, 'port', `${place} is free`, `Set another ${name}.`));
  }
  return checks;
}

function listenProblem(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      const reasons: Record<string, string> = {
        EADDRINUSE: 'the port is in use',
        EACCES: 'permission denied',
        EADDRNOTAVAIL: 'this machine does not have that address',
      };
      resolve(reasons[error.code ?? ''] ?? error.message);
    });
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
}
