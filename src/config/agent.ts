/** The variables of `smart-router agent`, apart from those of the router: the sidecar loads nothing that it does not need. */
import { ConfigError } from '../errors.js';
import { type Field, field, optional, section } from './entries.js';
import { baseUrl, dnsName, hidePassword, line, secret, webhookUrl, wholeNumber } from './fields.js';
import { showValue } from './tiers.js';

const agentFields = section('Sidecar', {
  routerUrl: field(
    'SMART_ROUTER_URL',
    baseUrl('https', 'http'),
    'http://127.0.0.1:8080',
    'Address of the router',
    { secret: 'password' },
  ),
  apiKey: optional('SMART_ROUTER_API_KEY', secret(1), 'Bearer key of the voice agents', { secret: true }),
  apiKeyFile: optional(
    'SMART_ROUTER_API_KEY_FILE',
    line(4096),
    'File with that key, read for every request, so that a changed key needs no restart',
  ),
  podName: optional('POD_NAME', dnsName, 'Name of this pod'),
  podUid: optional('POD_UID', line(128), 'UID of this pod'),
  port: field('AGENT_PORT', wholeNumber(0, 65_535), '9357', 'Port on 127.0.0.1; 0: any free port'),
  healthUrl: optional(
    'AGENT_HEALTH_URL',
    webhookUrl,
    'Health address of the voice agent; when nothing listens there, its calls end',
  ),
});

export const agentTable: readonly Field<unknown>[] = Object.values(agentFields);

export interface AgentConfig {
  readonly routerUrl: string;
  readonly apiKey: string | undefined;
  readonly apiKeyFile: string | undefined;
  readonly podName: string;
  readonly podUid: string | undefined;
  readonly port: number;
  readonly healthUrl: string | undefined;
}

/** Reads and checks the environment. Throws a ConfigError with all problems, one line each. */
export function loadAgentConfig(env: NodeJS.ProcessEnv): AgentConfig {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [key, { name, kind, fallback, secret: hidden }] of Object.entries<Field<unknown>>(agentFields)) {
    const text = (hidden === true ? env[name] : env[name]?.trim()) || (fallback as string | undefined);
    if (text === undefined) continue;
    const reading = kind.read(text);
    if ('value' in reading) values[key] = reading.value;
    else {
      const got = hidden === true ? 'the value is not shown' : `got ${showValue(hidePassword(text))}`;
      problems.push(`${name} must be ${kind.expects}; ${got}`);
    }
  }
  if (!env.POD_NAME?.trim())
    problems.push(
      'POD_NAME must be set to the name of this pod; in Kubernetes take it from metadata.name (fieldRef)',
    );
  if (env.SMART_ROUTER_API_KEY && env.SMART_ROUTER_API_KEY_FILE?.trim())
    problems.push('set SMART_ROUTER_API_KEY or SMART_ROUTER_API_KEY_FILE, not both');
  if (problems.length > 0) throw new ConfigError(problems);
  const config = values as unknown as AgentConfig;
  // People paste addresses of the API.
  return { ...config, routerUrl: config.routerUrl.replace(/\/api\/v1$/, '') };
}
