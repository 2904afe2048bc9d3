/**
 * A separate process: the router as `smart-router serve` starts it. Arguments: the store's address and the number of pods.
 */
import { loadConfig } from '../../src/config/config.js';
import { limitGarbage } from '../../src/main/processes.js';
import { startRouter } from '../../src/main/router.js';
import { answerSpent } from './server-process.js';
import { podNames } from './store.js';

const [redisUrl = '', pods = ''] = process.argv.slice(2);
const config = loadConfig({
  REDIS_URL: redisUrl,
  HTTP_PORT: '0',
  METRICS_PORT: 'off',
  POD_SOURCE: 'static',
  STATIC_PODS: podNames(Number(pods)).join(','),
  TIER_CONFIG: JSON.stringify({ tiers: { gold: { target: Number(pods) } }, hold: { max_wait: '60s' } }),
  // Another benchmark measures the leader's work: it leads at once, and a router started next need not wait for its lease.
  LEADER_ELECTION_ENABLED: 'false',
  RECONCILE_INTERVAL: '20m',
  CLEANUP_INTERVAL: '20m',
  AUDIT_INTERVAL: 'off',
});
limitGarbage();
const router = await startRouter(config);
process.send?.({ url: router.url });
answerSpent();
