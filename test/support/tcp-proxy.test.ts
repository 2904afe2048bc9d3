/** The proxy breaks connections but keeps the order of their bytes, as TCP does. */
import { connect, createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { tcpProxy } from './tcp-proxy.js';
import { until } from './until.js';

it('delivers delayed data before later data and before stalled data', async () => {
  let heard = '';
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      heard += chunk.toString();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const address = server.address();
  const proxy = await tcpProxy(typeof address === 'object' && address !== null ? address.port : 0);
  const client = connect(proxy.port, '127.0.0.1');
  client.on('error', () => {});
  client.setNoDelay(true);
  onTestFinished(() => void client.destroy());
  let said = '';
  /** Sends each in its own packet. */
  const say = (text: string) =>
    new Promise<void>((resolve) => {
      said += text;
      client.write(text, () => setImmediate(() => setImmediate(resolve)));
    });
  await say('first ');
  await until(() => heard === said, 'it is connected');
  for (let i = 0; i < 5; i += 1) {
    proxy.delay(60);
    await say(`slow ${i} `);
    proxy.blackHole();
    await say(`stuck ${i} `);
    proxy.pass();
    await say(`quick ${i} `);
  }
  await until(() => heard.length === said.length, 'all of it is there');
  expect(heard).toBe(said);
});
