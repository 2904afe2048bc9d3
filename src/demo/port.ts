/** The first free port from `wanted` on. */
import { createServer } from 'node:net';
import { ConfigError } from '../errors.js';

const tries = 20;

export async function freePort(wanted: number, host: string): Promise<number> {
  if (wanted === 0) return 0;
  for (let port = wanted; port < wanted + tries && port <= 65_535; port++) {
    if (await isFree(port, host)) return port;
  }
  throw new ConfigError([
    `the ports ${wanted} to ${wanted + tries - 1} on ${host} are taken: set another HTTP_PORT`,
  ]);
}

/** Any other trouble than a taken port is told better by the router itself. */
function isFree(port: number, host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code !== 'EADDRINUSE'));
    probe.listen(port, host, () => probe.close(() => resolve(true)));
  });
}
