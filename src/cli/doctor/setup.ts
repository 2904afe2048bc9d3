/** Values that are right by themselves and still not what somebody meant. */
import type { Clock } from '../../clock.js';
import { type Config, describeConfig } from '../../config/config.js';
import { hidePassword, isLoopback } from '../../config/fields.js';
import { buildWsUrl, defaultCallTemplate } from '../../http/providers/ws-url.js';
import { type Check, ok, warn } from './check.js';

export function checkSetup(env: NodeJS.ProcessEnv, config: Config, clock: Clock): Check[] {
  return [checkVoiceAgents(env, config, clock), checkAccess(config), checkWebhooks(config)];
}

function checkVoiceAgents(env: NodeJS.ProcessEnv, config: Config, clock: Clock): Check {
  const name = 'voice agents';
  const rows = describeConfig(env, 'serve', clock);
  const isDefault = (variable: string) =>
    rows.some((row) => row.name === variable && row.source === 'default');
  const sample = `a Twilio call on pod ${samplePod(config)} gets the ws_url ${sampleWsUrl(config)}`;
  const path = isDefault('WS_URL_TEMPLATE')
    ? ' (the default path, that of the Go router; WS_URL_TEMPLATE sets another)'
    : ' (WS_URL_TEMPLATE)';
  if (!isDefault('VOICE_AGENT_BASE_URL') || !config.wsUrlTemplate.includes('{base}')) {
    return ok(name, `${sample}${path}`);
  }
  return warn(
    name,
    `VOICE_AGENT_BASE_URL is still the default, which no provider can reach: ${sample}${path}`,
    'Set it to the public wss:// address of the voice agents.',
  );
}

const samplePod = ({ staticPods }: Config) => staticPods?.[0]?.name ?? 'voice-agent-0';

function sampleWsUrl(config: Config): string {
  const provider = 'twilio';
  const url = buildWsUrl({
    template: config.wsUrlTemplate,
    baseUrl: config.voiceAgentBaseUrl,
    pod: samplePod(config),
    provider,
    callTemplate: defaultCallTemplate(provider),
    flow: 'v2',
  });
  return hidePassword(url);
}

function checkAccess({ apiKey, adminKey, authDisabled, httpHost }: Config): Check {
  const name = 'access';
  const set = (variable: string) => `Set ${variable} to at least 16 characters.`;
  if (authDisabled && !isLoopback(httpHost)) {
    return warn(name, `anybody who reaches ${httpHost} may do everything`, set('SMART_ROUTER_ADMIN_KEY'));
  }
  if (apiKey && adminKey) return ok(name, 'both keys are set');
  if (adminKey) return ok(name, 'the admin key opens everything; voice agents would have to hold it too');
  if (apiKey) {
    return warn(name, 'only the API key is set: operators are refused', set('SMART_ROUTER_ADMIN_KEY'));
  }
  return ok(name, `no key is needed; only this machine can reach ${httpHost}`);
}

function checkWebhooks(config: Config): Check {
  const name = 'webhooks';
  const tokens = {
    twilio: config.twilioAuthToken,
    plivo: config.plivoAuthToken,
    exotel: config.exotelWebhookToken,
  };
  const given = Object.entries(tokens).flatMap(([provider, token]) => (token ? [provider] : []));
  const signed = given.filter((provider) => provider !== 'exotel');
  if (signed.length > 0 && config.publicUrl === undefined) {
    return warn(
      name,
      `PUBLIC_URL is not set: signatures of ${signed.join(' and ')} are checked over the address a request came to, which differs behind a proxy`,
      'Set PUBLIC_URL to the address that the provider calls.',
    );
  }
  if (signed.length > 0 && config.publicUrl?.startsWith('http:')) {
    return warn(
      name,
      `PUBLIC_URL is ${config.publicUrl}`,
      'Providers call https:// addresses: set it to that one.',
    );
  }
  const guarded = config.apiKey !== undefined || config.adminKey !== undefined;
  if (given.length > 0)
    return ok(name, `checked for ${given.join(', ')}${guarded ? '; the others are off' : ''}`);
  if (guarded) {
    return warn(
      name,
      'all are off: a key is set and no provider token is',
      'Set TWILIO_AUTH_TOKEN, PLIVO_AUTH_TOKEN or EXOTEL_WEBHOOK_TOKEN if a provider calls this router.',
    );
  }
  return ok(name, 'open: no key and no provider token is set');
}
