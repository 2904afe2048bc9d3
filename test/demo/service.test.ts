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
  endpoints: () => readonly Endpoint[] | Promise<readonly Endpoint[]>,
): Promise<() => Promise<string>> {
  const service = new Service(endpoints);
  const port = await service.listen(0, '127.0.0.1');
  onTestFinished(() => service.close());
  return async () => (await fetch(`http://127.0.0.1:${port}/`, { headers: { connection: 'close' } })).text();
}

describe('the service of the demo', () => {
  test('distributes connections over the replicas', async () => {
    const [a, b] = [await replica('a'), await replica('b')];
    const ask = await open(() => [a.endpoint, b.endpoint]);
    const answers = [await ask(), await ask(), await ask(), await ask()];
    expect(answers.toSorted()).toEqual(['a', 'a', 'b', 'b']);
  });

  test('tries the next replica when one refuses the connection', async () => {
    const [a, b] = [await replica('a'), await replica('b')];
    const ask = await open(() => [a.endpoint, b.endpoint]);
    await new Promise((resolve) => a.server.close(resolve));
    expect([await ask(), await ask()]).toEqual(['b', 'b']);
  });

  test('connections wait until the replicas are known', async () => {
    const a = await replica('a');
    let setKnown = (_: Endpoint[]) => {};
    const known = new Promise<Endpoint[]>((resolve) => {
      setKnown = resolve;
    });
    const ask = await open(() => known);
    const answers = [ask(), ask()];
    setKnown([a.endpoint]);
    expect(await Promise.all(answers)).toEqual(['a', 'a']);
  });

  test('refuses connections without a replica', async () => {
    const ask = await open(() => []);
    await expect(ask()).rejects.toThrow();
  });
});
