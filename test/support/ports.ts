/**
 * Ports for servers that stop and start again on the same port. The system may give a port of its own choice to another
 * process while the server is down, and to a client as its local port.
 */
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/** Below the ports that Linux, macOS and Windows choose from. Even: the next one may be used too. */
const anyPort = () => 2 * randomInt(10_000, 16_000);

/** Calls `listen` with random ports until one is free. */
export async function onOwnPort<T>(listen: (port: number) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await listen(anyPort());
    } catch (error) {
      if (attempt === 10 || !/in use/i.test(String(error))) throw error;
    }
  }
}

/** Unused ports, all different, for programs whose failed start is not tried again. */
export async function freePorts(count: number): Promise<number[]> {
  const found = new Set<number>();
  while (found.size < count) {
    const port = anyPort();
    if (await isFree(port)) found.add(port);
  }
  return [...found];
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
