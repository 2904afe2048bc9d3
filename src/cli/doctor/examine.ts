/** All checks, in the order in which a person would make them. */
import type { Clock } from '../../clock.js';
import { type Config, loadConfig } from '../../config/config.js';
import { ConfigError } from '../../errors.js';
import { type Check, fail, ok, skip, warn } from './check.js';
import { checkDatabase } from './database.js';
import { checkEmbedded } from './embedded.js';
import { checkKubernetes } from './kubernetes.js';
import { checkRouter, ownAddress } from './router.js';
import { checkSetup } from './setup.js';
import { checkStoreAt } from './store.js';

export async function examine(
  env: NodeJS.ProcessEnv,
  clock: Clock,
  /** Undefined: where the router of this environment would listen. */
  given: string | undefined,
  timeoutMs: number,
): Promise<Check[]> {
  const url = given ?? ownAddress(env, clock);
  const { config, isWhole, checks } = readConfiguration(env, clock);
  const [foundStore, database, foundKubernetes, router] = await Promise.all([
    config ? checkStoreAt(config, clock) : [skip('store', 'not looked at: its settings cannot be read')],
    config ? checkDatabase(config, clock) : [],
    isWhole && config?.podSource === 'kubernetes' ? checkKubernetes(config, clock, timeoutMs) : [],
    checkRouter({ env, clock, url, timeoutMs, config }),
  ]);
  const isServed = router.some(({ name, status }) => name === 'router ready' && status === 'ok');
  const store =
    isServed && !env.REDIS_URL?.trim() ? unlessNeededHere(foundStore, 'REDIS_URL', url) : foundStore;
  // Inside a cluster the service account is what a router here would use, whatever is set.
  const isOutside = !env.KUBERNETES_SERVICE_HOST;
  const kubernetes =
    isServed && isOutside && !env.KUBECONFIG?.trim() && !env.POD_SOURCE?.trim()
      ? unlessNeededHere(foundKubernetes, 'KUBECONFIG', url)
      : foundKubernetes;
  return [
    checkNode(process.versions.node),
    ...checks,
    checkEmbedded(config),
    ...store,
    ...database,
    ...kubernetes,
    ...(config ? checkSetup(env, config, clock) : []),
    ...router,
  ];
}

/**
 * Whoever looks at a router that runs well, from a shell where none is set up, has nothing to mend: that this machine
 * could not start another one is no failure. What was set here, or answers here, is judged as ever.
 */
function unlessNeededHere(checks: readonly Check[], variable: string, url: string): readonly Check[] {
  const [only, ...more] = checks;
  if (only?.status !== 'fail' || more.length > 0) return checks;
  return [
    skip(
      only.name,
      `${variable} is not set here, and the router at ${url} has its own; to start another one here: ${only.message}`,
    ),
  ];
}

const oldestNode = 20;

export function checkNode(version: string): Check {
  return Number(version.split('.')[0]) >= oldestNode
    ? ok('node', `v${version}`)
    : fail('node', `v${version} is too old`, `Install Node.js ${oldestNode} or newer.`);
}

/** With problems elsewhere store and database are still looked at, as long as their own variables can be read. */
function readConfiguration(
  env: NodeJS.ProcessEnv,
  clock: Clock,
): { config: Config | undefined; isWhole: boolean; checks: Check[] } {
  const name = 'configuration';
  try {
    const config = loadConfig(env, 'serve', clock);
    const checks = [...config.warnings.map((text) => warn(name, text, 'See docs/configuration.md.'))];
    const found = checks.length > 0 ? checks : [ok(name, 'every value and relation holds')];
    return { config, isWhole: true, checks: found };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const checks = error.problems.map((text) => fail(name, text, 'See `smart-router config`.'));
    const theirs = /^(REDIS|DATABASE|RECORDS|ZOMBIE)_/;
    const ofEngines = Object.fromEntries(Object.entries(env).filter(([key]) => theirs.test(key)));
    try {
      return { config: loadConfig(ofEngines, 'serve', clock), isWhole: false, checks };
    } catch {
      return { config: undefined, isWhole: false, checks };
    }
  }
}
