/** The address that `doctor` uses without --url and SMART_ROUTER_URL. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ownAddress } from '../../src/cli/doctor/router.js';
import { systemClock } from '../../src/clock.js';
import { runner } from './support.js';

const run = runner(() => '');

const address = (env: NodeJS.ProcessEnv) => ownAddress(env, systemClock);

describe('the address of the router', () => {
  it('is the address that the environment configures', () => {
    expect(address({})).toBe('http://127.0.0.1:8080');
    expect(address({ HTTP_PORT: '8090' })).toBe('http://127.0.0.1:8090');
    expect(address({ HTTP_HOST: '10.1.2.3', HTTP_PORT: '80' })).toBe('http://10.1.2.3:80');
    expect(address({ HTTP_HOST: '::1', HTTP_PORT: '8090' })).toBe('http://[::1]:8090');
  });

  it('is loopback if the router listens everywhere, and the default for an invalid configuration', () => {
    expect(address({ HTTP_HOST: '0.0.0.0', HTTP_PORT: '8090' })).toBe('http://127.0.0.1:8090');
    expect(address({ HTTP_HOST: '::' })).toBe('http://127.0.0.1:8080');
    expect(address({ HTTP_PORT: '0' })).toBe('http://127.0.0.1:8080');
    expect(address({ HTTP_PORT: 'x' })).toBe('http://127.0.0.1:8080');
  });

  it('is the one that doctor asks, unless --url or SMART_ROUTER_URL names another', async () => {
    const asked: string[] = [];
    const server = createServer((request, response) => {
      asked.push(request.url ?? '');
      response.writeHead(404).end('{}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const env = { REDIS_URL: 'embedded', POD_SOURCE: 'static', STATIC_PODS: 'a', HTTP_PORT: String(port) };
    const { stdout } = await run('doctor', { env });
    expect(asked).toEqual(['/api/v1/health']);
    expect(stdout).toContain(`http://127.0.0.1:${port}`);
    await run('doctor', { env: { ...env, SMART_ROUTER_URL: 'http://127.0.0.1:1' } });
    await run('doctor --url http://127.0.0.1:1', { env });
    expect(asked).toHaveLength(1);
  });
});
