import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Endpoint, Service } from '../../src/demo/service.js';

async function replica(name: string): Promise<{ endpoint: Endpoint; server: Server }> {
  const server = createServer((_, response) => response.setHeader('connection', 'close').end(name));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return { server, endpoint: { host: '127.0.0.1', port: (server.address() as AddressInfo).port } };
}

async function open(
  endpoints: () => readonly Endpoint[],
  opened?: Promise<void>,
): Promise<() => Promise<string>> {
  const service = new Service(endpoints, opened);
  const port = await service.listen(0, '127.0.0.1');
  onTestFinished(() => service.close());
  return async () => (await fetch(`http://127.0.0.1:${port}/`, { headers: { connection: 'close' } })).text();
}

describe('the address in front of the routers', () => {
  test('gives each connection to the next replica', async () => {
    const [a, b] = [await replica('a'), await replica('b')];
    const ask = await open(() => [a.endpoint, b.endpoint]);
    const answers = [await ask(), await ask(), await ask(), await ask()];
    expect(answers.toSorted()).toEqual(['a', 'a', 'b', 'b']);
  });

  test('goes on to another replica when one is dead and nobody has noticed yet', async () => {
    const [a, b] = [await replica('a'), await replica('b')];
    const ask = await open(() => [a.endpoint, b.endpoint]);
    await new Promise((resolve) => a.server.close(resolve));
    expect([await ask(), await ask()]).toEqual(['b', 'b']);
  });

  test('who comes before it is opened waits for that', async () => {
    const a = await replica('a');
    let found: Endpoint[] = [];
    let opens = () => {};
    const opened = new Promise<void>((resolve) => {
      opens = resolve;
    });
    const ask = await open(() => found, opened);
    const answers = [ask(), ask()];
    found = [a.endpoint];
    opens();
    expect(await Promise.all(answers)).toEqual(['a', 'a']);
  });

  test('refuses when there is nobody', async () => {
    const ask = await open(() => []);
    await expect(ask()).rejects.toThrow();
  });
});
