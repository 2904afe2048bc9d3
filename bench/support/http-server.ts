/**
 * A separate process: the router as `smart-router serve` starts it, with one more route. That route has the schemas,
 * hooks, log line and metrics of allocate, and answers a constant. The difference is the cost of allocate itself.
 * Arguments: the store's address and the number of pods.
 */
import { loadConfig } from '../../src/config/config.js';
import { AllocateBody, Allocated } from '../../src/http/schemas.js';
import { limitHeapGrowth } from '../../src/main/heap.js';
import { startRouter } from '../../src/main/router.js';
import { spent } from './server-process.js';
import { podNames } from './store.js';

const [redisUrl = '', pods = ''] = process.argv.slice(2);
const answer = {
  success: true as const,
  pod_name: 'voice-agent-12345',
  ws_url: 'wss://voice.example.com/ws/voice-agent-12345/twilio/order-confirmation/v2',
  source_pool: 'pool:gold',
  allocated_at: '2026-01-01T00:00:00.000Z',
  lease_expires_at: '2026-01-01T00:15:00.000Z',
  fence: 1_790_000_000_000_000,
  was_existing: false,
};
const config = loadConfig({
  REDIS_URL: redisUrl,
  HTTP_PORT: '0',
  METRICS_PORT: 'off',
  POD_SOURCE: 'static',
  STATIC_PODS: podNames(Number(pods)).join(','),
  TIER_CONFIG: JSON.stringify({ tiers: { gold: { target: Number(pods) } }, hold: { max_wait: '60s' } }),
  // Another benchmark measures the leader's work.
  RECONCILE_INTERVAL: '20m',
  CLEANUP_INTERVAL: '20m',
});
limitHeapGrowth();
const router = await startRouter(config, {
  extend: async (app) => {
    app.post(
      '/bench/empty',
      { config: { access: 'api' }, schema: { body: AllocateBody, response: { 200: Allocated } } },
      async (request) => {
        request.about.call_sid = request.body.call_sid;
        return answer;
      },
    );
  },
});
process.send?.({ url: router.url });
process.on('message', () => process.send?.(spent()));
process.once('disconnect', () => process.exit());
