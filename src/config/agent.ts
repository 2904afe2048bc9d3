/** The variables of `smart-router agent`, apart from those of the router: the sidecar loads nothing that it does not need. */
import { ConfigError } from '../errors.js';
import { type Field, field, optional, readFields, section, textOf, type Values } from './entries.js';
import { baseUrl, dnsName, line, secret, webhookUrl, wholeNumber } from './fields.js';

const agentFields = section('Sidecar', {
  SMART_ROUTER_URL: field(baseUrl('https', 'http'), 'http://127.0.0.1:8080', 'Address of the router', {
    secret: 'password',
  }),
  SMART_ROUTER_API_KEY: optional(secret(1), 'Bearer key of the voice agents', { secret: true }),
  SMART_ROUTER_API_KEY_FILE: optional(
    line(4096),
    'File with that key, read for every request, so that a changed key needs no restart',
  ),
  POD_NAME: optional(dnsName, 'Name of this pod'),
  POD_UID: optional(line(128), 'UID of this pod'),
  AGENT_PORT: field(wholeNumber(0, 65_535), '9357', 'Port on 127.0.0.1; 0: any free port'),
  AGENT_HEALTH_URL: optional(
    webhookUrl,
    'Health address of the voice agent; when nothing listens there, its calls end',
  ),
});

export const agentTable: readonly Field<unknown>[] = Object.values(agentFields);

export type AgentConfig = Values<typeof agentFields> & { readonly podName: string };

/** Reads and checks the environment. Throws a ConfigError with all problems, one line each. */
export function loadAgentConfig(env: NodeJS.ProcessEnv): AgentConfig {
  const { values, problems } = readFields(agentFields, (field) => {
    const text = textOf(field, env);
    return text === undefined
      ? { text: field.fallback as string | undefined, source: 'default' }
      : { text, source: 'environment' };
  });
  const { podName = '' } = values;
  if (!env.POD_NAME?.trim())
    problems.push(
      'POD_NAME must be set to the name of this pod; in Kubernetes take it from metadata.name (fieldRef)',
    );
  if (values.apiKey !== undefined && values.apiKeyFile !== undefined)
    problems.push('set SMART_ROUTER_API_KEY or SMART_ROUTER_API_KEY_FILE, not both');
  if (problems.length > 0) throw new ConfigError(problems);
  // People paste addresses of the API.
  return { ...values, podName, url: values.url.replace(/\/api\/v1$/, '') };
}
