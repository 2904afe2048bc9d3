/**
 * A separate process, the limit of a router like ours: Fastify with the response schemas of the router, without hooks, log,
 * validation and metrics. It answers a constant. With the address of a store as argument, it first sends one PING per request.
 */
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import { Allocated, Released } from '../../src/http/schemas.js';
import { answerSpent } from './server-process.js';

const [redisUrl] = process.argv.slice(2);
const redis = redisUrl === undefined ? undefined : new Redis(redisUrl);
const app = Fastify();
const allocated = {
  success: true,
  pod_name: 'voice-agent-12345',
  ws_url: 'wss://voice.example.com/ws/voice-agent-12345/twilio/order-confirmation/v2',
  source_pool: 'pool:gold',
  allocated_at: '2026-01-01T00:00:00.000Z',
  lease_expires_at: '2026-01-01T00:15:00.000Z',
  fence: 1_790_000_000_000_000,
  was_existing: false,
};
const released = {
  success: true,
  pod_name: allocated.pod_name,
  released_to_pool: 'pool:gold',
  was_draining: false,
};
app.post('/api/v1/allocate', { schema: { response: { 200: Allocated } } }, async () => {
  await redis?.ping();
  return allocated;
});
app.post('/api/v1/release', { schema: { response: { 200: Released } } }, async () => {
  await redis?.ping();
  return released;
});
process.send?.({ url: await app.listen({ host: '127.0.0.1', port: 0 }) });
answerSpent();
