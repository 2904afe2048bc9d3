/** The router at --url: alive, ready, and open to our keys. Where none runs: whether one could. */
import { createServer } from 'node:net';
import type { Clock } from '../../clock.js';
import { type Config, loadConfig } from '../../config/config.js';
import { ConfigError } from '../../errors.js';
import { version } from '../../version.js';
import { RouterApi } from '../api.js';
import { type Check, fail, ok, skip, warn } from '../commands/doctor.js';
import { replicasDiffer } from '../commands/status.js';
import { toFailure } from '../failure.js';
import type { Status } from '../replies.js';

export interface Examined {
  env: NodeJS.ProcessEnv;
  clock: Clock;
  url: string;
  timeoutMs: number;
  config: Config | undefined;
}

/** Where `serve` listens in this environment, whatever else is wrong with it; from here, any address is this machine. */
export function ownAddress({ HTTP_HOST, HTTP_PORT }: NodeJS.ProcessEnv, clock: Clock): string {
  try {
    const { httpHost, httpPort } = loadConfig(
      { HTTP_HOST, HTTP_PORT, AUTH_DISABLED: 'true' },
      'serve',
      clock,
    );
    const host = ['0.0.0.0', '::'].includes(httpHost) ? '127.0.0.1' : httpHost;
    // Port 0 is any free one: nobody can know which.
    return `http://${host.includes(':') ? `[${host}]` : host}:${httpPort || 8080}`;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return 'http://127.0.0.1:8080';
  }
}

export async function checkRouter(examined: Examined): Promise<Check[]> {
  const api = connect(examined, undefined);
  try {
    await api.send('/health', { has: 'status' });
  } catch (error) {
    const { code, message } = toFailure(error);
    if (code === 'not_a_router') return [fail('router', message, 'Or something else took its port.')];
    return [
      warn('router', `none answers at ${examined.url}`, 'Start one with `smart-router serve`, or set --url.'),
      ...(await checkPorts(examined.config)),
    ];
  } finally {
    api.close();
  }
  return [
    ok('router', `answers at ${examined.url}`),
    await checkReady(examined),
    ...(await checkKeys(examined)),
  ];
}

function connect({ url, timeoutMs, clock }: Examined, from: string | undefined, env?: NodeJS.ProcessEnv) {
  const value = from === undefined ? undefined : env?.[from];
  const key = from !== undefined && value ? { value, from } : undefined;
  return new RouterApi({ baseUrl: url, key, timeoutMs, clock });
}

async function checkReady(examined: Examined): Promise<Check> {
  const api = connect(examined, undefined);
  try {
    await api.send('/ready', { has: 'status' });
    return ok('router ready', 'its store answers');
  } catch (error) {
    return fail('router ready', toFailure(error).message, 'Look at its log and at its REDIS_URL.');
  } finally {
    api.close();
  }
}

const adminKey = 'SMART_ROUTER_ADMIN_KEY';
const apiKey = 'SMART_ROUTER_API_KEY';

/** Each key is tried on something that only reads, and that it must open. */
async function checkKeys(examined: Examined): Promise<Check[]> {
  const { env } = examined;
  const usable = (name: string) => /^[\x21-\x7e]+$/.test(env[name] ?? '');
  const checks: Check[] = [];
  if (usable(adminKey) || !usable(apiKey)) checks.push(await checkAdmin(examined, usable(adminKey)));
  if (usable(apiKey)) checks.push(await checkApi(examined));
  return checks;
}

async function checkAdmin(examined: Examined, given: boolean): Promise<Check> {
  const api = connect(examined, given ? adminKey : undefined, examined.env);
  try {
    const { body } = await api.send<Status>('/status', { has: 'pools' });
    if (body.version !== version) {
      return warn(
        'router access',
        `operators are let in; the router is version ${body.version}, this command ${version}`,
        'Use the command of the same version.',
      );
    }
    const { replicas_differ = [] }: Partial<Status> = body;
    if (replicas_differ.length > 0)
      return warn('router access', replicasDiffer(replicas_differ), 'The next leader may remove pods.');
    return ok('router access', given ? `${adminKey} is accepted` : 'no key is needed');
  } catch (error) {
    const { code, message } = toFailure(error);
    if (code === 'unauthorized' && !given) {
      return skip('router access', `it wants a key and ${adminKey} is not set here`);
    }
    return accessCheck('router access', adminKey, code, message);
  } finally {
    api.close();
  }
}

/** Only a refusal is about the key: a router whose store is down answers with another error. */
function accessCheck(name: string, variable: string, code: string, message: string): Check {
  if (code === 'unauthorized' || code === 'forbidden')
    return fail(name, message, `Compare ${variable} with the router's.`);
  if (['store_unavailable', 'timeout'].includes(code)) return skip(name, `not looked at: ${message}`);
  return fail(name, message, "Look at the router's log.");
}

async function checkApi(examined: Examined): Promise<Check> {
  const api = connect(examined, apiKey, examined.env);
  try {
    await api.send('/pod/smart-router-doctor', { has: 'pod_name' });
    return ok('router api key', `${apiKey} is accepted`);
  } catch (error) {
    const { code, message } = toFailure(error);
    return code === 'pod_not_found'
      ? ok('router api key', `${apiKey} is accepted`)
      : accessCheck('router api key', apiKey, code, message);
  } finally {
    api.close();
  }
}

async function checkPorts(config: Config | undefined): Promise<Check[]> {
  if (!config) return [skip('ports', 'not looked at: the configuration cannot be read')];
  const ports = { HTTP_PORT: config.httpPort, METRICS_PORT: config.metricsPort };
  const checks: Check[] = [];
  for (const [name, port] of Object.entries(ports)) {
    if (port === undefined || port === 0) continue;
    const problem = await listenProblem(config.httpHost, port);
    checks.push(
      problem === undefined
        ? ok('port', `${name} ${port} on ${config.httpHost} is free`)
        : fail(
            'port',
            `${name} ${port} on ${config.httpHost} cannot be used: ${problem}`,
            `Set another ${name}.`,
          ),
    );
  }
  return checks;
}

function listenProblem(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      const reasons: Record<string, string> = {
        EADDRINUSE: 'something listens there already',
        EACCES: 'this user may not listen there',
        EADDRNOTAVAIL: 'this machine does not have that address',
      };
      resolve(reasons[error.code ?? ''] ?? error.message);
    });
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
}
