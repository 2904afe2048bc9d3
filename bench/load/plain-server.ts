/**
 * A separate process, the limit of a router like ours: Fastify without log, schemas and metrics. It sends one PING to
 * Redis per request and answers a constant. Argument: the store's address.
 */
import Fastify from 'fastify';
import { Redis } from 'ioredis';

const redis = new Redis(process.argv[2] ?? '');
const app = Fastify();
const answer = {
  success: true,
  pod_name: 'voice-agent-12345',
  ws_url: 'wss://voice.example.com/ws/voice-agent-12345/twilio/order-confirmation/v2',
  source_pool: 'pool:gold',
  allocated_at: '2026-01-01T00:00:00.000Z',
  lease_expires_at: '2026-01-01T00:15:00.000Z',
  fence: 1_790_000_000_000_000,
  was_existing: false,
};
app.post('/api/v1/allocate', async () => {
  await redis.ping();
  return answer;
});
app.post('/api/v1/release', async () => {
  await redis.ping();
  return { success: true, pod_name: answer.pod_name, released_to_pool: 'gold', was_draining: false };
});
process.send?.({ url: await app.listen({ host: '127.0.0.1', port: 0 }) });
process.once('disconnect', () => process.exit());
